"""Hosts on this machine with nothing but sshd, to which Pliant is deployed; needs root.

Each host has its own network, host name, processes and disk. Its disk is an overlay of this
machine's, in memory, so what a deployment leaves is what the upper layer of the overlay holds. The
system's own Python and sshd are those of this machine; folders of users, of root and of temporary
files are empty. All hosts share the folder ``/shared``, as on a network file system.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from netkit.network import Network
from sshkit import make_key

USER, _UID = "alice", 5001
_PROGRAMS = ("ip", "nsenter", "unshare", "pivot_root", "ssh-keygen", "/usr/sbin/sshd")

_INIT = f"""
set -e
cd "$DISK"
mkdir -p upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
cd root
mount --rbind /dev dev && mount --rbind /sys sys
mount -t proc proc proc
for each in home root run tmp dev/shm; do mount -t tmpfs -o mode=1777 private $each; done
chmod 755 home run && chmod 700 root
mkdir -p run/sshd shared && mount --bind "$SHARED" shared
cp ../host_key ../sshd_config "$KEY.pub" run/sshd
chmod 600 run/sshd/host_key
grep -q ^{USER}: etc/passwd || {{
    echo "{USER}:x:{_UID}:{_UID}::/home/{USER}:/bin/sh" >> etc/passwd
    echo "{USER}:x:{_UID}:" >> etc/group
}}
install -d -o {_UID} -g {_UID} home/{USER}
pivot_root . mnt
cd /
umount -l /mnt
hostname "$NAME"
/usr/sbin/sshd -f /run/sshd/sshd_config
touch /run/ready
set +e
while :; do sleep 3600; done   # the first process of the host, which reaps orphans
"""
_PROCESSES = "cat /proc/[0-9]*/comm | grep -vxE 'cat|grep|sh|runuser|find|sshd'"
_SSHD = """\
HostKey /run/sshd/host_key
AuthorizedKeysFile /run/sshd/key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
MaxStartups 200
"""


def why_missing() -> str:
    """Return why bare hosts cannot be made on this machine; empty if they can."""
    missing = [each for each in _PROGRAMS if shutil.which(each) is None]
    if missing:
        return f"{', '.join(missing)}: not installed (Debian: iproute2, openssh-server)"
    return "" if os.geteuid() == 0 else "only root can make hosts"


class BareHosts:
    """A set of hosts and the network between them.

    The administrator's machine is in this network, but is none of the hosts.
    """

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.base = Path(tempfile.mkdtemp(prefix="pliant-hosts-"))
        self.key, self.known_hosts = self.base / "key", self.base / "known_hosts"
        self._network = Network(names, "10.77.0")
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def address(self, name: str) -> str:
        """Return the address of a host."""
        return self._network.address(name)

    def up(self) -> None:
        """Make and start all hosts."""
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "t", self.base], check=True)
        (self.base / "shared").mkdir()
        (self.base / "shared").chmod(0o1777)
        make_key(self.key)
        self._network.up()
        known = []
        for name in self.names:
            (self.base / name).mkdir()
            make_key(self.base / name / "host_key")
            (self.base / name / "sshd_config").write_text(_SSHD)
            kind, key = (self.base / name / "host_key.pub").read_text().split()[:2]
            known.append(f"{self.address(name)} {kind} {key}\n")
        self.known_hosts.write_text("".join(known))
        for name in self.names:
            self.boot(name)

    def boot(self, name: str) -> None:
        """Start a host that is down. Its disk has what it had when the host went down."""
        variables = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "DISK": str(self.base / name),
            "SHARED": str(self.base / "shared"),
            "KEY": str(self.key),
            "NAME": name,
        }
        own = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
        with open(self.base / f"{name}.log", "ab") as log:
            self._running[name] = subprocess.Popen(
                [*self._network.inside(name), *own, "bash", "-c", _INIT],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        while not self._files(name, "run/ready").exists():
            if self._running[name].poll() is not None:
                raise RuntimeError((self.base / f"{name}.log").read_text())
            time.sleep(0.02)

    def crash(self, name: str) -> None:
        """End all processes of a host."""
        os.kill(self._init_pid(name), signal.SIGKILL)
        self._running.pop(name).wait()

    def _init_pid(self, name: str) -> int:
        """Return the process id of the init process of a host; 0 if it has not started yet."""
        outer = self._running[name].pid
        found = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        return int(found[0]) if found else 0

    def _files(self, name: str, path: str) -> Path:
        return Path(f"/proc/{self._init_pid(name)}/root", path)

    def run(self, name: str, command: str, user: str = "root") -> str:
        """Run a shell command on a host as a login of a user would, and return its output."""
        words = ["nsenter", "-t", str(self._init_pid(name)), "-a", "runuser", "-u", user, "--"]
        home = "/root" if user == "root" else f"/home/{user}"
        path = "PATH=/opt/pliant/current/bin:/usr/sbin:/usr/bin:/bin"
        words += ["env", "-i", f"HOME={home}", f"USER={user}", path, f"--chdir={home}"]
        done = subprocess.run(
            [*words, "sh", "-c", command], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise RuntimeError(f"{name}: {command}: {done.stdout}{done.stderr}")
        return done.stdout

    def as_administrator(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of this checkout's Pliant on the administrator's machine."""
        return subprocess.run(
            [*self._network.inside("server"), *command],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.base,
        )

    def evidence(self, name: str) -> set[str]:
        """Return the names of everything on a host that a deployment could leave there.

        These are files that this machine does not have, and the host's accounts and processes.
        """
        upper = self.base / name / "upper"
        written = [Path("/", path.relative_to(upper)) for path in upper.rglob("*")]
        files = {f"file {path}" for path in written if not path.exists()}
        listed = self.run(name, "cat /etc/passwd /etc/group")
        accounts = {f"account {line}" for line in listed.splitlines()}
        processes = {f"process {line}" for line in self.run(name, _PROCESSES).splitlines()}
        volatile = {f"file {line}" for line in self.run(name, "find /run /tmp").splitlines()}
        return files | accounts | processes | volatile

    def down(self) -> None:
        """End all hosts, and remove their network and their folder."""
        for name in list(self._running):
            with suppress(ProcessLookupError):
                self.crash(name)
        self._network.down()
        subprocess.run(["umount", "--lazy", self.base], check=False)
        self.base.rmdir()
