"""One SSH session with one host, through which operations of `on_host.agent` are carried out."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from pliant.client.ssh.session import HostError, SshSession, connect
from pliant.client.ssh.target import SshTarget
from pliant.deploy.on_host import MODULES
from pliant.deploy.planning.cluster import Host

CONNECT_TIMEOUT_S = 15.0
#: The longest operation is an installation, which compiles for some seconds on an idle host.
_OPERATION_TIMEOUT_S = 1800.0
_PACKAGE = "pliant.deploy.on_host"
#: Receives the modules of `on_host` and starts the last of them, without a file on the host.
BOOTSTRAP = """\
import json, sys, types
v = sys.version_info
if v < (3, 11):
    print(json.dumps({"error": "%s is Python %d.%d, 3.11 or newer is needed"
        % (sys.executable, v[0], v[1]), "remedy": "name another interpreter with `python`"}))
    sys.exit(0)
sources = json.loads(sys.stdin.buffer.readline())
for name, text in sources:
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(text, name, "exec"), module.__dict__)
module.main()
"""
_NOT_FOUND = 127


class AgentSession:
    """A connection to a host, and operations on it."""

    def __init__(self, host: Host, known_hosts: str) -> None:
        self._host = host
        self._target = SshTarget(
            host.name,
            host.address,
            host.user,
            host.port,
            host.key,
            known_hosts,
            host.jump,
        )
        self._session: SshSession | None = None

    def connect(self) -> None:
        """Connect to the host, whose key must be known.

        Raises:
            HostError: the host cannot be reached, its key is not accepted, or the login is refused.
        """
        self._session = connect(self._target, timeout_s=CONNECT_TIMEOUT_S)

    def close(self) -> None:
        """Close the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def call(
        self,
        operation: str,
        arguments: Mapping[str, Any],
        payload: bytes = b"",
        *,
        step: str = "",
    ) -> dict[str, Any]:
        """Carry out an operation on the host and return its result.

        Args:
            operation: its name in `on_host.agent`.
            arguments: the arguments of the operation.
            payload: bytes that the operation reads after its arguments.
            step: the name of the operation in errors.

        Raises:
            HostError: the operation failed, or the connection broke.
        """
        name = step or operation
        if self._session is None:
            raise HostError(self._host.name, name, "there is no connection", "run it again")
        request = {"operation": operation, "arguments": dict(arguments)}
        words = [self._host.python, "-I", "-c", BOOTSTRAP]
        done = self._session.run(
            ["sudo", "-n", *words] if self._host.sudo else words,
            step=name,
            # A file, because it is sent in blocks: paramiko copies what is left for each packet.
            stdin=io.BytesIO(_encoded(agent_sources()) + _encoded(request) + payload),
            timeout_s=_OPERATION_TIMEOUT_S,
        )
        try:
            answer = json.loads(done.stdout.decode("utf-8", "replace").splitlines()[-1])
        except (IndexError, ValueError):
            raise self._no_answer(name, done.last_line, done.code) from None
        # A start-up file of the shell may print, for example, a number.
        if not isinstance(answer, dict) or not {"result", "error"} & answer.keys():
            raise self._no_answer(name, done.last_line, done.code)
        if "error" in answer:
            remedy = str(answer.get("remedy", ""))
            raise HostError(self._host.name, name, str(answer["error"]), remedy)
        result: dict[str, Any] = answer["result"]
        return result

    def _no_answer(self, step: str, text: str, code: int) -> HostError:
        host = self._host
        if code == _NOT_FOUND:
            cause, remedy = f"there is no {host.python} on the host", "install it, or set `python`"
            return HostError(host.name, "python", cause, remedy)
        if host.sudo and "sudo" in text:
            remedy = f"let {host.user} use sudo without a password, or set `user`"
            return HostError(host.name, "sudo", text, remedy)
        cause = text or f"{host.python} ended with {code}"
        return HostError(host.name, step, cause, f"check {host.python} on the host")


def agent_sources() -> list[tuple[str, str]]:
    """Return name and text of each module that runs on hosts, in the order of imports."""
    folder = files(_PACKAGE)
    return [
        (f"{_PACKAGE}.{name}", (folder / f"{name}.py").read_text(encoding="utf-8"))
        for name in MODULES
    ]


def _encoded(value: object) -> bytes:
    return json.dumps(value).encode("utf-8") + b"\n"
