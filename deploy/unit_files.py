"""The files that systemd needs to run the daemons, filled in for this installation.

The templates in ``units`` have words like ``@PLIANT@`` where a value of the installation belongs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.resources import files

#: Template and place below /etc of the files that every role has.
_COMMON = (
    ("pliant.target", "systemd/system/pliant.target"),
    ("sysusers.conf", "sysusers.d/pliant.conf"),
    ("tmpfiles.conf", "tmpfiles.d/pliant.conf"),
    ("daemon.env", "pliant/daemon.env"),
)
_CLIENT = ("client.yaml", "pliant/client.yaml")


def _unit(name: str) -> tuple[str, str]:
    return f"{name}.service", f"systemd/system/{name}.service"


#: The files of each role, in addition to those that all have.
ROLES = {
    "server": (_unit("pliant-server"), ("server.yaml", "pliant/server.yaml"), _CLIENT),
    "node": (_unit("pliant-nodectl"), ("node.yaml", "pliant/node.yaml")),
    "helper": (_unit("pliant-helper"),),
    "login-agent": (_unit("pliant-login-agent"), _CLIENT),
    "metrics": (_unit("pliant-metrics"),),
}


@dataclass(frozen=True, slots=True)
class Installation:
    """Paths and addresses of an installation that are written into its unit files."""

    #: Path of the command ``pliant``.
    pliant: str
    #: Path of the interpreter that has the package.
    python: str
    #: Address for the nodes of other hosts, as HOST:PORT; empty if there are none.
    listen: str = ""
    #: Further folders that the server may write, such as that of checkpoints.
    writable: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class InstalledFile:
    """A file that an installation needs: a systemd file, or settings of a daemon."""

    #: Place below /etc.
    path: str
    text: str

    @property
    def is_setting(self) -> bool:
        """Return whether administrators may edit the file, so that it must never be replaced."""
        return self.path.startswith("pliant/")


def make_files(roles: Collection[str], installation: Installation) -> list[InstalledFile]:
    """Return the files that a host with these roles needs, without duplicates."""
    named = [*_COMMON, *(each for role in ROLES if role in roles for each in ROLES[role])]
    return [
        InstalledFile(path, fill_in(_template(name), installation))
        for name, path in dict.fromkeys(named)
    ]


def fill_in(text: str, installation: Installation) -> str:
    """Return a template with the values of an installation filled in.

    A line of the template that becomes empty, because its value is empty, is left out.
    """
    listen = installation.listen
    values = {
        "@PLIANT@": _quote(installation.pliant),
        "@PYTHON@": _quote(installation.python),
        "@LISTEN@": f"listen: {listen}" if listen else "# listen: HOST:7000",
        "@WRITABLE@": "\n".join(f"ReadWritePaths={_quote(each)}" for each in installation.writable),
    }
    lines = []
    for line in text.splitlines():
        filled = line
        for word, value in values.items():
            filled = filled.replace(word, value)
        if filled or not line:
            lines.append(filled)
    return "\n".join(lines) + "\n"


def _quote(path: str) -> str:
    """Return a path as a systemd unit file needs it, with percent signs and dollars escaped."""
    escaped = path.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$").replace('"', '\\"')
    return f'"{escaped}"' if any(char.isspace() for char in path) else escaped


def _template(name: str) -> str:
    return (files(__package__) / "units" / name).read_text(encoding="utf-8")
