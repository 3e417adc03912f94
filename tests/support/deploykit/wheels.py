"""Small wheels: one of Pliant that uses this checkout, so that a test needs no network."""

from __future__ import annotations

import base64
import hashlib
import sysconfig
import zipfile
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path

from testkit import ROOT


def write_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str], *, tag: str = "py3-none-any"
) -> Path:
    """Write a wheel with files; those in its metadata folder are named ``INFO/...``."""
    info = f"{name}-{version}.dist-info"
    content = {path.replace("INFO", info): text for path, text in files.items()}
    content.setdefault(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\n")
    content[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nTag: {tag}\n"
    rows = [f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in content.items()]
    content[f"{info}/RECORD"] = "".join(rows) + f"{info}/RECORD,,\n"
    path = folder / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for each, text in content.items():
            archive.writestr(each, text)
    return path


def write_checkout_wheel(folder: Path, version: str = "1.0") -> Path:
    """Write a wheel of Pliant whose modules are those of this checkout and its environment."""
    folder.mkdir(exist_ok=True)
    own = distribution("pliant")
    points = own.read_text("entry_points.txt") or ""
    folders = [str(ROOT / "src"), sysconfig.get_path("purelib")]
    files = {
        "checkout.pth": "".join(f"{each}\n" for each in folders),
        "INFO/entry_points.txt": points,
        "INFO/METADATA": f"Metadata-Version: 2.1\nName: pliant\nVersion: {version}\n",
    }
    return write_wheel(folder, "pliant", version, files)


def _digest(text: str) -> str:
    found = hashlib.sha256(text.encode("utf-8")).digest()
    return base64.urlsafe_b64encode(found).rstrip(b"=").decode("ascii")
