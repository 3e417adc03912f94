"""A release: the wheels from which the Python environment of a host is made."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from pliant.core.support.base_error import PliantError

#: The C library that a manylinux tag of the old form needs.
_OLD_TAGS = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_TAG = re.compile(r"manylinux_(\d+)_(\d+)_(\w+)", re.ASCII)
_DIGEST_DIGITS = 8
#: The distribution that gives a release its version.
PLIANT = "pliant"


class ReleaseError(PliantError):
    """The wheels do not form a release for a host; the text says why and names the remedy."""


@dataclass(frozen=True, slots=True)
class Platform:
    """The values of a host that decide which wheels fit: Python and glibc version, and machine."""

    python: tuple[int, int]
    machine: str
    #: Version of the C library; (0, 0) if it is not glibc.
    glibc: tuple[int, int]

    @classmethod
    def of(cls, python: tuple[int, int, int], machine: str, glibc: str) -> Platform:
        """Return the platform of a host from values that were probed there."""
        words = glibc.split(".")
        version = (int(words[0]), int(words[1])) if len(words) > 1 else (0, 0)
        return cls(python[:2], machine, version)

    def __str__(self) -> str:
        return f"Python {self.python[0]}.{self.python[1]} on {self.machine}"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel file in the folder of wheels, with its distribution, version and tags."""

    #: Name of the file.
    file: str
    sha256: str
    #: Bytes of all files in it.
    unpacked_bytes: int
    #: Normalised names of the distributions that it always needs.
    needs: Collection[str] = ()

    @property
    def distribution(self) -> str:
        """Return the normalised name of the distribution."""
        return normalise(self.file.split("-")[0])

    @property
    def version(self) -> str:
        """Return the version of the distribution."""
        return self.file.split("-")[1]

    def fits(self, platform: Platform) -> bool:
        """Return whether a host can use the wheel, according to the tags in the wheel's name."""
        pythons, abis, platforms = self.file.removesuffix(".whl").split("-")[-3:]
        return any(
            _python_fits(python, abi, platform.python)
            for python in pythons.split(".")
            for abi in abis.split(".")
        ) and any(_system_fits(each, platform) for each in platforms.split("."))


@dataclass(frozen=True, slots=True)
class Release:
    """The wheels that are installed together into one virtual environment."""

    #: Name of the folder of the environment on hosts.
    environment: str
    version: str
    #: SHA-256 by file name.
    wheels: Mapping[str, str]
    unpacked_bytes: int


def normalise(name: str) -> str:
    """Return the normalised name of a distribution: lower case, with single dashes."""
    return re.sub(r"[-_.]+", "-", name).lower()


def choose_release(wheels: Collection[Wheel], platform: Platform) -> Release:
    """Return the release that the wheels make for a host.

    Raises:
        ReleaseError: a wheel is missing, or wheels of two versions of a distribution fit the host.
    """
    chosen: dict[str, Wheel] = {}
    versions: dict[str, set[str]] = {}
    for wheel in sorted(wheels, key=lambda each: each.file):
        found = versions.setdefault(wheel.distribution, set())
        if wheel.fits(platform):
            # Another Python may need another version, because packages drop old Pythons.
            found.add(wheel.version)
            # Names sort a wheel for one Python before one for any: `cp311` before `py3`.
            chosen.setdefault(wheel.distribution, wheel)
    for name, fitting in versions.items():
        if len(fitting) > 1:
            listed = ", ".join(sorted(fitting))
            raise ReleaseError(
                f"the wheelhouse has {name} in versions {listed}: remove all but one of them"
            )
    if missing := sorted(set(_missing(versions, chosen))):
        raise ReleaseError(
            f"the wheelhouse has no wheel of {', '.join(missing)} for {platform}: add them with "
            f"`pliant deploy wheels DIR --python {platform.python[0]}.{platform.python[1]}`"
        )
    lines = "".join(f"{each.file} {each.sha256}\n" for each in chosen.values())
    text = f"{platform.python}\n{lines}"
    digest = hashlib.sha256(text.encode("utf-8")).hexdigest()[:_DIGEST_DIGITS]
    version = chosen[PLIANT].version
    return Release(
        environment=f"env-{version}-{digest}",
        version=version,
        wheels={each.file: each.sha256 for each in chosen.values()},
        unpacked_bytes=sum(each.unpacked_bytes for each in chosen.values()),
    )


def _missing(versions: Collection[str], chosen: Mapping[str, Wheel]) -> Iterator[str]:
    yield from (name for name in versions if name not in chosen)
    if PLIANT not in chosen:
        yield PLIANT
    for wheel in chosen.values():
        yield from (name for name in wheel.needs if name not in chosen)


def _python_fits(python: str, abi: str, own: tuple[int, int]) -> bool:
    match = re.fullmatch(r"(py|cp)(\d)(\d*)", python)
    if match is None or int(match[2]) != own[0]:
        return False
    minor = int(match[3]) if match[3] else 0
    if match[1] == "py":
        return abi == "none" and minor <= own[1]
    if abi in ("abi3", "none"):
        return minor <= own[1]
    return minor == own[1] and abi == python


def _system_fits(tag: str, platform: Platform) -> bool:
    if tag in ("any", f"linux_{platform.machine}"):
        return True
    if match := _TAG.fullmatch(tag):
        needed = (int(match[1]), int(match[2]))
        return match[3] == platform.machine and needed <= platform.glibc
    for old, needed in _OLD_TAGS.items():
        if tag == f"{old}_{platform.machine}":
            return needed <= platform.glibc
    return False
