"""The wheelhouse: a folder of wheels on the administrator's machine, for all hosts."""

from __future__ import annotations

import email.parser
import hashlib
import importlib.util
import io
import json
import marshal
import os
import re
import subprocess
import sys
import tarfile
import warnings
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.metadata import distribution
from urllib.parse import unquote, urlparse

from pliant.client.client_errors import ClientError
from pliant.deploy.on_host.release_environments import COMPILED
from pliant.deploy.planning.release import PLIANT, Wheel, normalise

_MAX_PARTS = 6


def read_wheelhouse(folder: str) -> list[Wheel]:
    """Return the wheels in a folder.

    Raises:
        ClientError: the folder cannot be read, has no wheels, or one of them is damaged.
    """
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".whl"))
    except OSError as error:
        raise ClientError(f"wheelhouse {folder}: {(error.strerror or '').lower()}") from None
    if not names:
        raise ClientError(
            f"wheelhouse {folder}: there are no wheels; make them with `pliant deploy wheels DIR`"
        )
    return [_read_wheel(folder, name) for name in names]


def _read_wheel(folder: str, name: str) -> Wheel:
    path = os.path.join(folder, name)
    if len(name.removesuffix(".whl").split("-")) not in (5, _MAX_PARTS):
        raise ClientError(f"wheelhouse: {path}: this is not the name of a wheel; remove it")
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        with zipfile.ZipFile(path) as archive:
            size = sum(info.file_size for info in archive.infolist())
            metadata = [each for each in archive.namelist() if _is_metadata(each)]
            text = archive.read(metadata[0]).decode("utf-8", "replace")
    except (OSError, zipfile.BadZipFile, IndexError) as error:
        raise ClientError(f"wheelhouse: {path} is damaged: {error}; make it again") from None
    return Wheel(name, digest, size, frozenset(_needs(text)))


def _is_metadata(name: str) -> bool:
    return name.count("/") == 1 and name.endswith(".dist-info/METADATA")


def _needs(metadata: str) -> Iterator[str]:
    """Yield the distributions that a wheel requires on every host, from the wheel's metadata.

    Requirements with a condition are left out.
    """
    message = email.parser.HeaderParser().parsestr(metadata)
    for line in message.get_all("Requires-Dist", []):
        if ";" not in line:
            match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", line)
            if match:
                yield normalise(match[0])


def pack_wheels(folder: str, wheels: Mapping[str, str], *, compiled: bool = False) -> bytes:
    """Return a tar archive of wheels, which the program on a host (`on_host`) unpacks.

    Args:
        folder: the folder of the wheels.
        wheels: the wheels to pack, by name; the values are not used.
        compiled: whether to add their modules as compiled by this Python. Otherwise hosts compile
            them, which takes two thirds of an installation.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in wheels:
            with open(os.path.join(folder, name), "rb") as file:
                _add(archive, name, file.read())
        if compiled:
            _add(archive, COMPILED, _compile_wheels(folder, wheels))
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def _compile_wheels(folder: str, wheels: Collection[str]) -> bytes:
    """Return a zip archive of compiled modules, each under the path of its source in a wheel."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as made:
        for wheel in wheels:
            with zipfile.ZipFile(os.path.join(folder, wheel)) as archive:
                for name in archive.namelist():
                    is_module = name.endswith(".py") and ".data/" not in name
                    if is_module and (code := _compile(name, archive.read(name))):
                        made.writestr(name, code)
    return buffer.getvalue()


def _compile(name: str, source: bytes) -> bytes:
    """Return a module compiled in the form of PEP 552, which does not depend on file times.

    The result is empty if the source cannot be compiled.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the sources of others
            code = compile(source, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return b""  # a template, or a test of syntax errors
    flags = (1).to_bytes(4, "little")  # by the hash of the source, which is not checked
    hashed = importlib.util.source_hash(source)
    return importlib.util.MAGIC_NUMBER + flags + hashed + marshal.dumps(code)


def default_requirement() -> str:
    """Return the requirement from which pip makes a wheel of this Pliant.

    It is the path of a checkout, if Pliant runs from one, or ``NAME==VERSION``.
    """
    found = distribution(PLIANT)
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    url = urlparse(str(origin.get("url", "")))
    if url.scheme == "file":
        return unquote(url.path)
    return f"{PLIANT}=={found.version}"


def make_wheelhouse(
    folder: str, source: str, extras: Collection[str], pythons: Sequence[str], glibc: str
) -> None:
    """Fill a folder with wheels of Pliant and of all that it needs.

    Args:
        folder: the folder of the wheels.
        source: a checkout, a wheel, or a requirement.
        extras: the extras of Pliant that are needed on hosts.
        pythons: further versions of Python that hosts have, such as ``3.12``.
        glibc: oldest version of the C library of these hosts, such as ``2.34``.

    Raises:
        ClientError: pip failed; its messages are on stderr.
    """
    requirement = f"{source}[{','.join(sorted(extras))}]" if extras else source
    if "==" in requirement and extras:
        name, _, version = source.partition("==")
        requirement = f"{name}[{','.join(sorted(extras))}]=={version}"
    os.makedirs(folder, exist_ok=True)
    _pip("wheel", "--wheel-dir", folder, requirement)
    own = [name for name in sorted(os.listdir(folder)) if name.startswith(f"{PLIANT}-")]
    machine, (major, minor) = os.uname().machine, glibc.split(".")
    for python in pythons:
        platforms = [f"manylinux_{major}_{each}_{machine}" for each in range(int(minor), 4, -1)]
        words = ["--only-binary=:all:", "--python-version", python, "--dest", folder]
        words += [word for each in platforms for word in ("--platform", each)]
        path = os.path.join(os.path.abspath(folder), own[-1])
        target = f"{path}[{','.join(sorted(extras))}]" if extras else path
        _pip("download", *words, target)


def _pip(*words: str) -> None:
    command = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", *words]
    code = subprocess.run(command, check=False, stdout=sys.stderr).returncode
    if code != 0:
        raise ClientError(f"pip {words[0]} ended with exit code {code}, see above")
