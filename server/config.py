"""The configuration of the server: one YAML file. Every error names its key."""

from __future__ import annotations

import difflib
import ipaddress
import math
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from pliant.core.arrays.task_numbers import LARGEST_ARRAY_SIZE
from pliant.core.support.base_error import PliantError
from pliant.core.support.input_limits import MAX_PROCESSORS
from pliant.core.values.fair_share_settings import Shares, parse_shares
from pliant.core.values.negotiation_policy import Escalation, GrowIf, NegotiationPolicy, Take
from pliant.core.values.resources import LARGEST, is_name
from pliant.core.values.timeouts import Timeouts
from pliant.core.values.user_limits import UserLimits, parse_user_limits
from pliant.protos.address import GRPC_SOCKET, Address, TcpAddress, UnixAddress, parse_address
from pliant.protos.daemons.config_files import ConfigFileError, read_config, with_line
from pliant.server.authorisation.roles import Roles, RolesFileError, read_roles
from pliant.server.support.notify_rules import NotifyRules, parse_notify_rules
from pliant.server.support.rate_limit import MESSAGES_AT_ONCE, MESSAGES_PER_S

_DEFAULT = Timeouts()
MAX_PORT = 65535
#: With this many doublings, half a minute becomes a year.
MAX_QUIET_DOUBLINGS = 20
#: Largest value of ``max_restarts``.
MAX_RESTARTS = 1_000_000
DEFAULT_STATE_DIR = "~/.local/state/pliant"
#: The directory in the state folder with the identity of a cluster of several hosts, and a file
#: that every identity has (`pliant.protos.identity.cluster_files`, which takes long to import).
IDENTITY_DIRECTORY, _IDENTITY_FILE = "identity", "roots.pem"


class ConfigError(PliantError, code="server-config"):
    """The configuration cannot be used; the message names the file and the key."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the server, by key of the configuration file."""

    state_dir: str = ""
    run_dir: str = ""
    #: HOST:PORT where nodes connect over TLS. Port 0 keeps the port of the last start where it is
    #: free. Empty: only the unix-domain socket in the run directory. Without the identity of a
    #: cluster, it is a port of a loopback interface, without TLS, for nodes and applications.
    listen: str = ""
    #: HOST:PORT where applications connect over TLS; empty: as ``listen``, with its port + 1.
    listen_applications: str = ""
    #: HOST:PORT where hosts join over TLS; empty: as ``listen``, with its port + 2.
    listen_joining: str = ""
    #: HOST:PORT for the login agents of other hosts, whose users then use this server; empty: none.
    listen_users: str = ""
    strategy: str = "equipartition"
    #: Options of the strategy by name; ``-`` and ``_`` are the same.
    strategy_options: dict[str, object] = {}
    #: A plan that takes longer is a fault. A strategy in a child process is killed then.
    strategy_deadline_s: float = 5.0
    #: MPI transport of every job (ofi or ucx) and its interface; empty: the controllers' own.
    transport: str = ""
    interface: str = ""
    #: An application has this long to answer an offer.
    offer_timeout_s: float = _DEFAULT.offer_timeout_s
    #: Joining ranks have this long to start.
    prepare_timeout_s: float = _DEFAULT.prepare_timeout_s
    #: An application has this long to reach its next safe point after GO.
    safe_point_timeout_s: float = _DEFAULT.safe_point_timeout_s
    #: An application has this long to report the result of a resize that it has begun, or to
    #: answer a withdrawal.
    resize_deadline_s: float = _DEFAULT.resize_deadline_s
    #: Leaving ranks have this long to exit before their job continues without waiting for them.
    release_timeout_s: float = _DEFAULT.release_timeout_s
    #: An application has this long to roll back a growth of which a joining rank has died.
    rollback_timeout_s: float = _DEFAULT.rollback_timeout_s
    #: An application that is suspended has this long to save itself, from its safe point on.
    save_deadline_s: float = _DEFAULT.save_deadline_s
    #: Folder of the jobs' checkpoints, shared by all nodes; empty: in the state folder.
    checkpoints: str = ""
    #: An application that refused an offer, or did not answer, gets no offers for this long.
    quiet_s: float = _DEFAULT.quiet_s
    #: How often ``quiet_s`` doubles at most while an application refuses consecutive growths.
    quiet_doublings: int = _DEFAULT.quiet_doublings
    #: A job that loses processes or a node runs again so often in a row without a new checkpoint.
    max_restarts: int = _DEFAULT.max_restarts
    #: A request of an application without a deadline expires after this long; 0 for never.
    request_timeout_s: float = _DEFAULT.request_timeout_s
    #: Rules of negotiations with applications.
    negotiation: NegotiationPolicy = NegotiationPolicy()
    #: Nodes have this long to report that the processes of a job were started.
    start_deadline_s: float = _DEFAULT.start_deadline_s
    #: Between TERM and KILL.
    kill_grace_s: float = _DEFAULT.kill_grace_s
    #: A node with processes that are still there this long after KILL is drained.
    end_deadline_s: float = _DEFAULT.end_deadline_s
    #: When the first processors of an ending job are free, the next plan waits this long for the
    #: others.
    settle_s: float = _DEFAULT.settle_s
    #: Messages that an application may send: per second on average, and at once.
    session_rate: float = MESSAGES_PER_S
    session_burst: float = MESSAGES_AT_ONCE
    #: A node that sends no heartbeat for this long is lost.
    lease_s: float = 60.0
    beat_interval_s: float = 2.0
    #: A change waits this long while another process has the job database locked.
    database_timeout_s: float = 10.0
    #: Named resources of the cluster, such as licenses, with the amount of each.
    resources: dict[str, int] = {}
    #: Fair order: half-life, shares of users and accounts (``core/values/fair_share_settings.py``).
    fairshare: dict[str, object] = {}
    #: The numbers of an array's tasks are smaller than this.
    max_array_size: int = 10_001
    #: Processors that a federation may claim at its sites; jobs up to this size are accepted.
    federated_processors: int = 0
    #: Limit of a user's uploads that no job uses yet, and of the outputs of a node; bytes.
    staging_limit: int = 4 << 30
    #: Limits for each user (``core/values/user_limits.py``).
    user_limits: dict[str, object] = {}
    #: Whom the server may tell about events of jobs (``server/support/notify_rules.py``).
    notify: dict[str, object] = {}
    #: Names of users who may act on all jobs and drain nodes.
    operators: tuple[str, ...] = ()
    #: Who may connect to the users' socket: the server's own account, or all users of the host.
    users: Literal["owner", "all"] = "owner"
    #: Folder of the users' socket if all users may connect.
    users_dir: str = "/run/pliant/users"
    #: The roles file, which names operators and administrators; empty: none.
    roles: str = ""
    #: Whether root may submit jobs, if all users may.
    allow_root_jobs: bool = False
    #: Users with a lower id cannot submit jobs, if all users may.
    lowest_uid: int = 1000
    #: Check every invariant after every event.
    debug: bool = False
    #: Form of the log, unless it goes to the journal.
    log_format: Literal["text", "json"] = "text"

    @property
    def state(self) -> Path:
        """Return the state folder, which holds the job database."""
        text = self.state_dir or os.environ.get("PLIANT_STATE_DIR") or DEFAULT_STATE_DIR
        return Path(text).expanduser().absolute()

    @property
    def run(self) -> Path:
        """Return the run folder, which holds sockets, addresses and pid files."""
        text = self.run_dir or os.environ.get("PLIANT_RUN_DIR")
        return Path(text).expanduser().absolute() if text else self.state / "run"

    @property
    def users_folder(self) -> Path | None:
        """Return the folder of the socket for all users; None if there is no such socket."""
        return Path(self.users_dir) if self.users == "all" else None

    def read_roles(self) -> Roles:
        """Read which users are operators or administrators.

        Raises:
            RolesFileError: if the roles file cannot be used, or an operator does not exist.
        """
        return read_roles(self.roles, self.operators)

    @property
    def checkpoint_folder(self) -> Path:
        """Return the folder of the jobs' checkpoints."""
        if not self.checkpoints:
            return self.state / "checkpoints"
        return Path(self.checkpoints).expanduser().absolute()

    @property
    def identity(self) -> Path:
        """Return the directory of the cluster's identity, which ``pliant cluster init`` makes."""
        return self.state / IDENTITY_DIRECTORY

    @property
    def uses_tls(self) -> bool:
        """Return whether other hosts may connect: ``listen`` is set and there is an identity."""
        return bool(self.listen) and has_identity(self.state)

    @property
    def address(self) -> Address:
        """Return the address on which nodes and applications connect without TLS."""
        if not self.listen or self.uses_tls:
            return UnixAddress(self.run / GRPC_SOCKET)
        return parse_address(self.listen)

    @property
    def tls_addresses(self) -> tuple[TcpAddress, TcpAddress]:
        """Return the TLS addresses: first the one for nodes, then the one for applications."""
        nodes = _tcp_address(self.listen)
        if self.listen_applications:
            return nodes, _tcp_address(self.listen_applications)
        return nodes, TcpAddress(nodes.host, nodes.port and nodes.port + 1)

    @property
    def joining_address(self) -> TcpAddress:
        """Return the address at which hosts without a certificate join the cluster."""
        if self.listen_joining:
            return _tcp_address(self.listen_joining)
        nodes = _tcp_address(self.listen)
        return TcpAddress(nodes.host, nodes.port and nodes.port + 2)

    def shares(self) -> Shares:
        """Return the settings of fair-share scheduling."""
        return parse_shares(self.fairshare)

    def limits_of_users(self) -> UserLimits:
        """Return the limits for each user."""
        return parse_user_limits(self.user_limits)

    def notify_rules(self) -> NotifyRules:
        """Return the rules that say to whom the server may send messages about jobs."""
        return parse_notify_rules(self.notify)

    def replaced(self, values: Mapping[str, object]) -> Config:
        """Return a copy of the configuration with other values for the keys in ``values``."""
        return msgspec.structs.replace(self, **values)

    def limits(self) -> Timeouts:
        """Return the timeouts of the core, each from the configuration key of the same name."""
        return Timeouts(**{name: getattr(self, name) for name in Timeouts.__dataclass_fields__})


def load_config(path: Path | None, **overrides: object) -> Config:
    """Read the configuration file, if there is one, and apply options of the command line.

    Options of the strategy are overridden one by one. If the command line names another strategy,
    the options in the file are ignored, because they belong to the strategy in the file.

    Raises:
        ConfigError: names the file, the key and what was expected.
    """
    settings = _read(path) if path else {}
    given = {key: value for key, value in overrides.items() if value is not None}
    if given.get("strategy") in (None, settings.get("strategy")):
        _add_options(settings, given)
    else:
        settings.pop("strategy_options", None)
    settings.update(given)
    where = f"{path}: " if path else ""
    try:
        return check_config(settings)
    except ConfigError as error:
        text = str(error)
        key = re.split(r"[:.\s\[]", text, maxsplit=1)[0]
        located = with_line(path, text) if path and key not in given else text
        raise ConfigError(f"{where}{located}") from None


def parse_options(words: Sequence[str]) -> dict[str, str] | None:
    """Parse strategy options of the command line, each written ``name=value``.

    Returns:
        The values by name, None if there are no options.

    Raises:
        ConfigError: if an option is not written that way or is given twice.
    """
    values: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise ConfigError(f"--strategy-option {word}: expected NAME=VALUE")
        if name in values:
            raise ConfigError(f"--strategy-option {name}: given twice")
        values[name] = value
    return values or None


def _add_options(settings: dict[str, object], given: dict[str, object]) -> None:
    """Add the strategy options of the file (``settings``) to those of the command line (``given``).

    An option that the command line sets keeps the value from the command line.
    """
    own, more = settings.get("strategy_options"), given.get("strategy_options")
    if isinstance(own, dict) and isinstance(more, dict):
        replaced = {str(name).replace("-", "_") for name in more}
        kept = {key: own[key] for key in own if str(key).replace("-", "_") not in replaced}
        given["strategy_options"] = kept | more


def check_config(settings: dict[str, object]) -> Config:
    """Check settings, and return the configuration that they make.

    Raises:
        ConfigError: if a key is unknown or a value is wrong.
    """
    _check_keys(settings, Config.__struct_fields__)
    if isinstance(policy := settings.get("negotiation"), dict):
        _check_keys(policy, tuple(NegotiationPolicy.__dataclass_fields__), "negotiation.")
    try:
        config = msgspec.convert(settings, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(_readable(str(error))) from None
    _check_values(config)
    return config


def _check_keys(settings: Mapping[str, object], known: Sequence[str], where: str = "") -> None:
    for key in settings:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f", did you mean {close[0]}?" if close else f"; known: {', '.join(known)}"
            raise ConfigError(f"{where}{key}: unknown key{hint}")


def _read(path: Path) -> dict[str, object]:
    try:
        return read_config(path)
    except ConfigFileError as error:
        raise ConfigError(f"{path}: {error}") from None


def _readable(text: str) -> str:
    """Return "lease_s: expected float, ..." for "Expected `float`, ... - at `$.lease_s`"."""
    match = re.fullmatch(r"(.*) - at `\$\.?(.*)`", text)
    message, key = (match[1], match[2]) if match else (text, "")
    message = message.replace("`", "")
    if key.endswith("_s"):
        message = message.replace("Expected float", "expected a number of seconds")
    choices = {
        "negotiation.take": Take,
        "negotiation.escalation": Escalation,
        "negotiation.grow_if": GrowIf,
    }.get(key)
    if choices is not None:
        message += f", expected one of {', '.join(choices)}"
    return f"{key}: {message[:1].lower()}{message[1:]}"


def _check_values(config: Config) -> None:
    for key in Config.__struct_fields__:
        value = getattr(config, key)
        if key.endswith("_s") and not (math.isfinite(value) and value >= 0):
            raise ConfigError(f"{key}: expected a number of seconds >= 0, got {value}")
    for key in ("beat_interval_s", "lease_s", "strategy_deadline_s"):
        if getattr(config, key) <= 0:
            raise ConfigError(f"{key}: must be above 0")
    for name, value in config.strategy_options.items():
        if not isinstance(value, str | int | float | None):
            raise ConfigError(f"strategy_options: {name}: expected one value, got {value}")
    if not 0 <= config.quiet_doublings <= MAX_QUIET_DOUBLINGS:
        raise ConfigError(f"quiet_doublings: expected 0 to {MAX_QUIET_DOUBLINGS}")
    for key in ("session_rate", "session_burst"):
        if not 1 <= getattr(config, key) < math.inf:
            raise ConfigError(f"{key}: expected a number of messages >= 1")
    if config.lease_s <= config.beat_interval_s:
        raise ConfigError("lease_s: must be longer than beat_interval_s")
    if config.transport not in {"", "ofi", "ucx"}:
        raise ConfigError(f"transport: expected ofi or ucx, got {config.transport}")
    if not re.fullmatch(r"[^\s/]{0,15}", config.interface):
        raise ConfigError(f"interface: {config.interface!r} is no name of a network interface")
    _check_shares(config)
    _check_limits(config)
    _check_resources(config.resources)
    _check_users(config)
    _check_listen("listen", config.listen, config)
    _check_listen("listen_applications", config.listen_applications, config)
    _check_listen("listen_joining", config.listen_joining, config)
    _check_listen("listen_users", config.listen_users, config)
    _check_ports(config)


def _check_shares(config: Config) -> None:
    try:
        config.shares()
    except ValueError as error:
        raise ConfigError(f"fairshare.{error}") from None
    try:
        config.limits_of_users()
    except ValueError as error:
        raise ConfigError(f"user_limits.{error}") from None
    try:
        config.notify_rules()
    except ValueError as error:
        raise ConfigError(f"notify.{error}") from None


def _check_limits(config: Config) -> None:
    ranges = {
        "max_array_size": (1, LARGEST_ARRAY_SIZE),
        "federated_processors": (0, MAX_PROCESSORS),
        "max_restarts": (0, MAX_RESTARTS),
    }
    for key, (least, most) in ranges.items():
        if not least <= (value := getattr(config, key)) <= most:
            raise ConfigError(f"{key}: expected {least} to {most}, got {value}")
    if config.staging_limit < 0:
        raise ConfigError(f"staging_limit: expected 0 or more bytes, got {config.staging_limit}")


def _check_resources(resources: Mapping[str, int]) -> None:
    for name, amount in resources.items():
        if not is_name(name):
            raise ConfigError(f"resources: {name!r:.80} is no name; write letters, digits, . _ -")
        if not 0 <= amount <= LARGEST:
            raise ConfigError(f"resources.{name}: expected 0 to {LARGEST}, got {amount}")


def _check_users(config: Config) -> None:
    if not Path(config.users_dir).is_absolute():
        raise ConfigError(f"users_dir: expected an absolute path, got {config.users_dir!r:.80}")
    if config.listen_users and config.users != "all":
        raise ConfigError("listen_users: users of other hosts can connect only with `users: all`")
    if config.lowest_uid < 1:
        raise ConfigError(f"lowest_uid: expected 1 or more, got {config.lowest_uid}")
    try:
        config.read_roles()
    except RolesFileError as error:
        raise ConfigError(str(error)) from None


def has_identity(state: Path) -> bool:
    """Return whether a state folder contains a cluster's identity; its files are not read."""
    return (state / IDENTITY_DIRECTORY / _IDENTITY_FILE).exists()


def _tcp_address(text: str) -> TcpAddress:
    address = parse_address(text)
    if not isinstance(address, TcpAddress):
        raise ValueError(f"expected HOST:PORT, got {text}")
    return address


def _check_listen(key: str, text: str, config: Config) -> None:
    if not text:
        return
    try:
        address = parse_address(text)
    except ValueError:
        raise ConfigError(f"{key}: expected host:port, got {text}") from None
    if isinstance(address, UnixAddress):
        raise ConfigError(
            f"{key}: expected host:port, got {text}; without it the server listens on a "
            "unix-domain socket in the run directory"
        )
    if _is_loopback(key, address.host) or has_identity(config.state):
        return
    raise ConfigError(
        f"{key}: {address.host} is not a loopback address, and {config.state} has no identity of a "
        "cluster: make one with `pliant cluster init`, or leave this key out"
    )


def _is_loopback(key: str, host: str) -> bool:
    """Return whether an IP address, the value of ``key``, belongs to this host only.

    Raises:
        ConfigError: it is no IP address and not ``localhost``.
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise ConfigError(f"{key}: expected an IP address or localhost, got {host}") from None


def _check_ports(config: Config) -> None:
    """Check the addresses for applications, joining hosts and login hosts.

    Raises:
        ConfigError: one of them is set although TLS is not used, equals another address, or has a
            port above `MAX_PORT`.
    """
    for key in ("listen_applications", "listen_joining", "listen_users"):
        if getattr(config, key) and not config.uses_tls:
            missing = "listen" if not config.listen else "an identity (`pliant cluster init`)"
            raise ConfigError(
                f"{key}: it is used only together with {missing}; without TLS, everything connects "
                "where nodes do"
            )
    if not config.uses_tls:
        return
    nodes, applications = config.tls_addresses
    used = {"listen": nodes}
    for key, what, address in (
        ("listen_applications", "applications", applications),
        ("listen_joining", "joining hosts", config.joining_address),
        *(
            [("listen_users", "login hosts", _tcp_address(config.listen_users))]
            if config.listen_users
            else []
        ),
    ):
        if address.port > MAX_PORT:
            raise ConfigError(
                f"listen: the port of {what} would be {address.port}; name another one with {key}"
            )
        for other, taken in used.items():
            if address == taken and address.port:
                raise ConfigError(f"{key}: {address} is used by {other} already")
        used[key] = address
