"""Compare the facts of a host with what Pliant needs: problems that stop its deployment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pliant.deploy.planning.cluster import Cluster, Folders, Host, Role
from pliant.deploy.planning.facts import HostFacts
from pliant.deploy.planning.release import Release

#: Certificates are valid from a minute before they are issued, so clocks may differ by that.
MAX_CLOCK_OFFSET_S = 30.0
#: The account in the units of systemd.
UNIT_ACCOUNT = "pliant"
#: Space for the state of the daemons.
MIN_STATE_BYTES = 200 << 20
#: Compiled modules need about half of the size of the sources.
_GROWTH = 1.5


@dataclass(frozen=True, slots=True)
class Problem:
    """A fact about a host because of which Pliant cannot be deployed there."""

    #: What was checked.
    check: str
    message: str
    remedy: str


def find_problems(
    cluster: Cluster,
    host: Host,
    facts: HostFacts,
    server: HostFacts | None,
    release: Release | None,
) -> list[Problem]:
    """Return the problems of a host.

    Args:
        cluster: the hosts file.
        host: one of its hosts.
        facts: the facts of this host.
        server: facts of the server's host, with which clock and accounts are compared; None if the
            server's host could not be reached.
        release: the release to be installed; None if the present command installs none.
    """
    found = [
        *_python(facts),
        *_rights(cluster, host, facts),
        *_network(cluster, host, facts),
        *_accounts(cluster, facts, server),
        *_checkpoints(cluster, host, facts),
        *_space(host, facts, release),
        *_units(cluster, host, facts),
        *_identity(cluster, host, facts, server),
    ]
    for folder, reason in facts.not_shared.items():
        found.append(
            Problem("shared folders", f"{folder}: {reason}", "mount it, or correct `shared`")
        )
    if server is not None:
        found += _clock(facts, server)
    return found


def _python(facts: HostFacts) -> Iterator[Problem]:
    if not facts.has_venv:
        yield Problem(
            "python", "the module venv is missing", "install it (Debian: apt install python3-venv)"
        )


def _rights(cluster: Cluster, host: Host, facts: HostFacts) -> Iterator[Problem]:
    remedy = "connect as root (`user`), or set `sudo: true`"
    if facts.is_root:
        return
    if facts.user != cluster.account:
        yield Problem(
            "account",
            f"user {facts.user} cannot start daemons of account {cluster.account}",
            f"{remedy}; or `account: {facts.user}`",
        )
    if cluster.has_helper and Role.NODE in host.roles:
        yield Problem(
            "root helper", f"user {facts.user} is not root", f"{remedy}; or `helper: false`"
        )
    if uses_systemd(cluster, facts):
        yield Problem("systemd", f"user {facts.user} is not root", f"{remedy}; or `service: plain`")


def uses_systemd(cluster: Cluster, facts: HostFacts) -> bool:
    """Return whether systemd starts the daemons of a host."""
    if cluster.service == "auto":
        return facts.has_systemd and facts.is_root
    return cluster.service == "systemd"


def _units(cluster: Cluster, host: Host, facts: HostFacts) -> Iterator[Problem]:
    """Yield a problem if systemd is used, but the hosts file has other folders or another account.

    The systemd units have a fixed account and fixed folders.
    """
    if not uses_systemd(cluster, facts):
        return
    default = Folders(prefix=host.folders.prefix)
    if host.folders != default or cluster.account != UNIT_ACCOUNT:
        yield Problem(
            "systemd",
            f"the units run as {UNIT_ACCOUNT}, with state, run and config in {default.state}, "
            f"{default.run} and {default.config}",
            "leave `account` and these `folders` out, or set `service: plain`",
        )


def _network(cluster: Cluster, host: Host, facts: HostFacts) -> Iterator[Problem]:
    address = cluster.server_address
    if host.interface and not facts.interfaces.get(host.interface):
        usable = ", ".join(name for name, own in facts.interfaces.items() if own)
        what = "has no address" if host.interface in facts.interfaces else "does not exist"
        yield Problem(
            "interface", f"{host.interface} {what}", f"set `interface` to one of: {usable}"
        )
    if not facts.route:
        yield Problem(
            "network", f"there is no way to the server at {address}", "check routes and `listen`"
        )
    elif Role.SERVER in host.roles and _is_elsewhere(address, facts):
        yield Problem(
            "network", f"{address} is no address of this host", "correct `listen` or `role`"
        )


def _is_elsewhere(address: str, facts: HostFacts) -> bool:
    """Return whether an IPv4 address belongs to another host; False for all host names."""
    words = address.split(".")
    is_numeric = len(words) == 4 and all(word.isdecimal() for word in words)
    return is_numeric and address not in facts.interfaces.values()


def _accounts(cluster: Cluster, facts: HostFacts, server: HostFacts | None) -> Iterator[Problem]:
    if facts.accounts.get(cluster.account) is None and not facts.is_root:
        yield Problem("accounts", f"there is no account {cluster.account}", "make it")
    for name in cluster.users:
        own = facts.accounts.get(name)
        other = server.accounts.get(name) if server is not None else own
        if own is None:
            yield Problem(
                "accounts", f"there is no account {name}", "correct the user database or `users`"
            )
        elif other is not None and own != other:
            yield Problem(
                "accounts",
                f"{name} has ids {own[0]}:{own[1]}, and {other[0]}:{other[1]} on the server's host",
                "give the account the same ids on all hosts",
            )


def _checkpoints(cluster: Cluster, host: Host, facts: HostFacts) -> Iterator[Problem]:
    """Yield a problem if the hosts file names a folder of checkpoints that does not exist.

    Only the server's host is checked. The first job would make this folder, and the jobs of other
    users could not write to it.
    """
    folder = cluster.checkpoints
    if folder and Role.SERVER in host.roles and folder not in facts.folders:
        mode = "-m 1777 " if cluster.has_helper else ""
        yield Problem(
            "checkpoints", f"{folder} does not exist", f"`mkdir {mode}{folder}` on a shared disk"
        )


def _space(host: Host, facts: HostFacts, release: Release | None) -> Iterator[Problem]:
    if release is not None and release.environment not in facts.environments:
        needed = int(release.unpacked_bytes * _GROWTH)
        if facts.free_bytes[host.folders.prefix] < needed:
            yield _too_full(host.folders.prefix, facts, needed)
    if facts.manifest is None and facts.free_bytes[host.folders.state] < MIN_STATE_BYTES:
        yield _too_full(host.folders.state, facts, MIN_STATE_BYTES)


def _too_full(folder: str, facts: HostFacts, needed: int) -> Problem:
    free = facts.free_bytes[folder] >> 20
    return Problem(
        "disk space",
        f"{folder} has {free} MB free, {needed >> 20} MB are needed",
        "free space, or name another folder with `folders`",
    )


def _clock(facts: HostFacts, server: HostFacts) -> Iterator[Problem]:
    offset = facts.clock_offset_s - server.clock_offset_s
    error = facts.clock_error_s + server.clock_error_s
    if abs(offset) - error > MAX_CLOCK_OFFSET_S:
        how = "ahead of" if offset > 0 else "behind"
        yield Problem(
            "clock",
            f"it is {abs(offset):.0f} s {how} that of the server's host",
            "set up time synchronisation (NTP) on both",
        )


def _identity(
    cluster: Cluster, host: Host, facts: HostFacts, server: HostFacts | None
) -> Iterator[Problem]:
    remedy = f"remove it first: `pliant deploy FILE --remove --limit {host.name}` with its file"
    if facts.manifest is not None and facts.manifest.cluster not in ("", cluster.name):
        yield Problem("cluster", f"the host belongs to cluster {facts.manifest.cluster}", remedy)
    elif server is not None and facts.node_roots and not _share(facts, server):
        yield Problem(
            "cluster",
            "the host is a node of another cluster, or of an earlier identity of this one",
            "run `pliant node leave` there, or deploy with --remove first",
        )


def _share(node: HostFacts, server: HostFacts) -> bool:
    return bool(set(node.node_roots) & set(server.server_roots))
