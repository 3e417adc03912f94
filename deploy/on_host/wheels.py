"""Install wheels into a virtual environment, without pip.

Hosts need neither pip nor a network. The format of wheels is that of the Python packaging
specification: an archive whose ``RECORD`` has the digest of each file.
"""

from __future__ import annotations

import base64
import configparser
import csv
import hashlib
import io
import os
import stat
import zipfile

from pliant.deploy.on_host.host_error import HostError

_SCRIPT = """\
#!{python}
import sys
from {module} import {head}
if __name__ == "__main__":
    sys.argv[0] = sys.argv[0].removesuffix(".exe")
    sys.exit({function}())
"""


class WheelInstaller:
    """Installs wheels into one environment."""

    def __init__(self, environment: str, site: str) -> None:
        """Install into a virtual environment; ``site`` is its folder of packages."""
        self._environment, self._site = environment, site
        self._python = os.path.join(environment, "bin", "python")

    def install(self, name: str, content: bytes) -> None:
        """Unpack a wheel into the environment, check each file, and make the wheel's commands.

        Args:
            name: the file name of the wheel, for errors.
            content: the bytes of the wheel.

        Raises:
            HostError: the wheel is damaged.
        """
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                self._install(archive)
        except (zipfile.BadZipFile, KeyError, ValueError) as error:
            raise HostError(f"{name} is damaged: {error}", "make the wheelhouse again") from None

    def _install(self, archive: zipfile.ZipFile) -> None:
        records = [each for each in archive.namelist() if each.endswith(".dist-info/RECORD")]
        if len(records) != 1:
            raise ValueError(f"it has {len(records)} files RECORD")
        folder = records[0].removesuffix("RECORD")
        digests = dict(_digests(archive.read(records[0]).decode("utf-8")))
        for info in archive.infolist():
            if not info.is_dir():
                content = archive.read(info)
                _check_digest(info.filename, content, digests, signature=folder)
                self._write(info, content)
        points = f"{folder}entry_points.txt"
        if points in archive.namelist():
            self._make_scripts(archive.read(points).decode("utf-8"))

    def _write(self, info: zipfile.ZipInfo, content: bytes) -> None:
        target, is_script = self._target(info.filename)
        os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
        if is_script and content.startswith(b"#!python"):
            content = b"#!" + os.fsencode(self._python) + b"\n" + content.partition(b"\n")[2]
        mode = info.external_attr >> 16
        if stat.S_ISLNK(mode):
            os.symlink(content.decode("utf-8"), target)
            return
        with open(target, "wb") as file:
            file.write(content)
        os.chmod(target, 0o755 if is_script or mode & 0o111 else 0o644)

    def _target(self, name: str) -> tuple[str, bool]:
        """Return the path at which a file of a wheel belongs, and whether it is a command."""
        parts = name.split("/")
        if name.startswith("/") or ".." in parts:
            raise ValueError(f"{name} would be outside of the environment")
        if not parts[0].endswith(".data") or len(parts) < 3:
            return os.path.join(self._site, *parts), False
        places = {
            "purelib": self._site,
            "platlib": self._site,
            "scripts": os.path.join(self._environment, "bin"),
            "headers": os.path.join(self._environment, "include"),
            "data": self._environment,
        }
        return os.path.join(places[parts[1]], *parts[2:]), parts[1] == "scripts"

    def _make_scripts(self, text: str) -> None:
        points = configparser.ConfigParser(delimiters=("=",), interpolation=None)
        # Names of commands are case-sensitive.
        points.optionxform = str  # type: ignore[assignment,method-assign]
        points.read_string(text)
        if not points.has_section("console_scripts"):
            return
        for name, value in points.items("console_scripts"):
            module, _, function = value.partition("[")[0].strip().partition(":")
            path = os.path.join(self._environment, "bin", os.path.basename(name))
            head = function.partition(".")[0]
            with open(path, "w", encoding="utf-8") as file:
                file.write(
                    _SCRIPT.format(python=self._python, module=module, head=head, function=function)
                )
            os.chmod(path, 0o755)


def _digests(record: str) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in csv.reader(io.StringIO(record)) if len(row) >= 2]


def _check_digest(name: str, content: bytes, digests: dict[str, str], signature: str) -> None:
    if name.startswith((f"{signature}RECORD", f"{signature}direct_url.json")):
        return  # a record does not hold its own digest
    algorithm, _, expected = digests[name].partition("=")
    found = base64.urlsafe_b64encode(hashlib.new(algorithm, content).digest()).rstrip(b"=")
    if found.decode("ascii") != expected.rstrip("="):
        raise ValueError(f"the digest of {name} does not match")
