"""Start and end an sshd that accepts one key of this account."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

from testkit.waiting import wait_until

_CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
MaxStartups 200
"""


def missing_programs() -> str:
    """Return which program is missing here for an sshd; empty if there is none."""
    for program in (_sshd(), "ssh-keygen"):
        if shutil.which(program) is None:
            return program
    return ""


def make_key(path: Path) -> Path:
    """Make a pair of keys, and return the file of the private one."""
    path.unlink(missing_ok=True)
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)]
    subprocess.run(words, check=True, capture_output=True)
    return path


class SshDaemon:
    """An sshd on 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.key = make_key(folder / "key")
        shutil.copy(f"{self.key}.pub", folder / "authorized_keys")
        make_key(folder / "host_key")
        self.known_hosts = folder / "known_hosts"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None
        self.trust()

    def trust(self) -> None:
        """Let clients know the present host key."""
        kind, key = (self.folder / "host_key.pub").read_text().split()[:2]
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {kind} {key}\n")

    def change_host_key(self) -> None:
        """Give the host another key, as a new installation does."""
        make_key(self.folder / "host_key")
        self.stop()
        self.start()

    def start(self, *options: str) -> None:
        """Start the daemon with further lines of its configuration; wait until it accepts."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        config = self.folder / "sshd_config"
        text = _CONFIG.format(port=self.port, folder=self.folder)
        config.write_text("\n".join((*options, text)))
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [_sshd(), "-D", "-e", "-f", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(self._accepts, what="sshd")

    def _accepts(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stop(self) -> None:
        """End the daemon; sessions that are open go on."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.wait(timeout=30)


def _sshd() -> str:
    """Return the path of sshd: it refuses to start without one."""
    return shutil.which("sshd") or "/usr/sbin/sshd"
