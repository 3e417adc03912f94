"""The checks of a request: everything that must hold before a process is forked for it.

A request to remove checkpoints is an order that the server signed. A request to start a world has
two parts: the launch order that the server signed, and the content that the order covers. The
content is in a sealed memory file, so that nobody can change it after it was checked.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pliant.nodectl.root_helper.become_user import User, find_user
from pliant.nodectl.root_helper.config import HelperConfig
from pliant.nodectl.root_helper.helper_errors import HelperRefusalError
from pliant.nodectl.world_folder import WORLD_NAME
from pliant.protos.daemons.atomic_files import write_private
from pliant.protos.daemons.private_paths import open_private_file
from pliant.protos.identity.identity_errors import IdentityError
from pliant.protos.signed_orders.launch_content import LaunchContent, signed_variables
from pliant.protos.signed_orders.launch_order import (
    LaunchOrder,
    LaunchOrderError,
    check_digest,
    verify,
)
from pliant.protos.signed_orders.nonce_window import NonceWindow
from pliant.protos.signed_orders.removal_order import RemovalOrder, verify_removal
from pliant.protos.signed_orders.signature_and_validity import (
    OrderRefusal,
    SignedOrder,
    SignedOrderError,
)

MAX_CONTENT_BYTES = 32 << 20
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


@dataclass(frozen=True, slots=True)
class CheckedLaunch:
    """A request to start a world (set of ranks) that has passed all checks, and its values."""

    order: LaunchOrder
    world: str
    user: User
    #: Tasks that the world may have on this node; 0 if there is no limit.
    max_tasks: int
    #: The PMI mapping of ranks to nodes, and the ranks on this node. MPICH names shared memory so.
    mapping: str = ""
    ranks: tuple[int, ...] = ()
    #: Memory that the job may have on this node; 0 if there is no limit.
    memory_bytes: int = 0
    #: CPUs of the ranks of this world; empty if they may run anywhere.
    cpus: tuple[int, ...] = ()

    @property
    def folder(self) -> str:
        """Return the name of the folder that only the job's user may read: ``JOB.RUN``."""
        return f"{self.order.job}.{self.order.run}"


class RequestVerifier:
    """Checks requests of the controller, and remembers which signed orders have been used."""

    def __init__(self, config: HelperConfig, clock: Callable[[], float] = time.time) -> None:
        self._config = config
        self._clock = clock
        self._window = NonceWindow(config.state / "nonces")
        self._generation_file = config.state / "generation"
        self._generation = self._read_generation()

    def check(self, signed: bytes, content: int) -> CheckedLaunch:
        """Check a request to start ranks. Call `use` before carrying it out.

        Args:
            signed: the launch order with its signature.
            content: descriptor of the sealed file in memory with the rest of the request.

        Returns:
            The values of the request.

        Raises:
            HelperRefusalError: the request must not be carried out.
        """
        try:
            order = verify(signed, self._config.key, **self._check_arguments())
            record = _read_content(content)
            covered = content_of(record)
            check_digest(order, covered.digest())
            request = record["request"]
            named = request["job"], request["run"], request["uid"]
            if named != (order.job, order.run, order.uid):
                message = f"the request is of job {named[0]}.{named[1]} and user {named[2]}"
                raise LaunchOrderError(OrderRefusal.DIGEST, message)
            if not WORLD_NAME.fullmatch(covered.world):
                message = f"no name for a world: {covered.world!r}"
                raise LaunchOrderError(OrderRefusal.FORMAT, message)
            tasks = self._max_tasks(int(request["max_tasks"]))
            cpus = self.check_cpus([cpu for rank in request.get("cpus", ()) for cpu in rank])
            mapping, ranks = str(request["mapping"]), tuple(rank for rank, _ in covered.ranks)
        except LaunchOrderError as error:
            raise HelperRefusalError(error.refusal.value, str(error)) from None
        except (
            *(LookupError, TypeError, ValueError, ArithmeticError),
            *(AttributeError, RecursionError),
        ) as error:
            message = f"the request is damaged ({type(error).__name__})"
            raise HelperRefusalError(OrderRefusal.FORMAT.value, message) from None
        user = self._find_user(order)
        memory = covered.memory_bytes
        return CheckedLaunch(order, covered.world, user, tasks, mapping, ranks, memory, cpus)

    def check_removal(self, signed: bytes) -> tuple[RemovalOrder, User]:
        """Check a request to remove checkpoints; call `use` before it is carried out.

        Returns:
            The order, and the user with whose rights it is carried out.

        Raises:
            HelperRefusalError: the request must not be carried out.
        """
        try:
            order = verify_removal(signed, self._config.key, **self._check_arguments())
        except SignedOrderError as error:
            raise HelperRefusalError(error.refusal.value, str(error)) from None
        return order, self._find_user(order)

    def _check_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments for the check of an order, such as the name of this node."""
        return {
            "cluster": self._config.cluster,
            "node": self._config.node,
            "now": self._clock(),
            "min_generation": self._generation,
            "allowed_system_users": self._config.system_users,
        }

    def _find_user(self, order: SignedOrder) -> User:
        """Return the user of an order, with the groups that the user has on this host.

        Raises:
            HelperRefusalError: no process of this user may run here.
        """
        config = self._config
        if order.uid == config.account_uid and order.uid not in config.system_users:
            message = f"user {order.uid} is the account of the controller, and has the node's key"
            raise HelperRefusalError("user", message)
        return find_user(order.uid, order.gid)

    def check_cpus(self, value: object) -> tuple[int, ...]:
        """Return the CPUs that a controller names; if it names none, all that root allows for jobs.

        Returns:
            The numbers of the CPUs, sorted; empty if neither the controller nor root limits them.

        Raises:
            ValueError: the value is not a list of numbers.
            HelperRefusalError: root does not allow one of the CPUs.
        """
        if not isinstance(value, list) or not all(type(cpu) is int and cpu >= 0 for cpu in value):
            raise ValueError("not a list of CPUs")
        allowed = self._config.cpus
        if allowed and not allowed.issuperset(value):
            others = ", ".join(map(str, sorted(set(value) - allowed)))
            raise HelperRefusalError("cpus", f"helper.json does not allow CPU {others} for jobs")
        return tuple(sorted(set(value) or allowed))

    def _max_tasks(self, wanted: int) -> int:
        """Return how many threads and processes a shim and its ranks may have; 0 for no limit.

        It is the lower one of ``wanted``, the controller's limit, and the limit that root has set.
        """
        limits = [limit for limit in (wanted, self._config.max_tasks) if limit > 0]
        return min(limits, default=0)

    def use(self, order: SignedOrder) -> None:
        """Record that an order was used, so that it is never accepted again, even after a restart.

        Raises:
            HelperRefusalError: the order was used before, or its use cannot be recorded.
        """
        try:
            self._window.use(order.nonce, keep_until=order.keep_nonce_until, now=self._clock())
            if order.generation > self._generation:
                write_private(self._generation_file, b"%d\n" % order.generation)
                self._generation = order.generation
        except (IdentityError, OSError) as error:
            code = getattr(error, "code", "")
            refusal = "replayed" if code == "replayed-order" else "record"
            text = str(error)
            if isinstance(error, OSError):
                text = f"{self._config.state}: {error.strerror or error}"
            raise HelperRefusalError(refusal, text) from None

    def _read_generation(self) -> int:
        try:
            file = open_private_file(self._generation_file, os.O_RDONLY)
        except FileNotFoundError:
            return 0
        with os.fdopen(file, "rb") as opened:
            return int(opened.read(32))


def _read_content(handle: int) -> dict[str, Any]:
    """Read the content of a sealed memory file, which is untrusted until its digest is checked."""
    try:
        seals = fcntl.fcntl(handle, fcntl.F_GET_SEALS)
    except OSError:
        seals = 0  # another kind of file
    if seals & _SEALS != _SEALS:
        raise ValueError("not a sealed memory file")
    size = os.fstat(handle).st_size
    if size > MAX_CONTENT_BYTES:
        raise ValueError("too large")
    record = json.loads(os.pread(handle, size, 0))
    if not isinstance(record, dict):
        raise TypeError("not an object")
    return record


def content_of(record: dict[str, Any]) -> LaunchContent:
    """Return the signed part of a request, with the values that the shim will use.

    A value of a wrong type either raises an error here or gives a digest that matches no order.
    """
    request = record["request"]
    environment = request["environment"]
    if not isinstance(request["argv"], list) or not isinstance(request["ranks"], list):
        raise TypeError("not a list")
    secrets = tuple(bytes.fromhex(record[name]) for name in ("token", "nodes", "checkpoint_key"))
    return LaunchContent(
        world=request["world"],
        resize=request["resize"],
        type=request["type"],
        size=request["size"],
        ranks=tuple((rank, processor) for rank, processor in request["ranks"]),
        argv=tuple(request["argv"]),
        environment=signed_variables(environment),
        directory=request["directory"],
        stdin=request["stdin"],
        stdout=request["stdout"],
        stderr=request["stderr"],
        umask=request["umask"],
        truncate_before=request["truncate_before"],
        checkpoint=environment["PLIANT_CHECKPOINT"],
        secrets=(secrets[0], secrets[1], secrets[2]),
        memory_bytes=max(0, int(request["memory_bytes"])),
        devices={
            kind: tuple(number for rank in ranks for number in rank)
            for kind, ranks in request["devices"].items()
        },
        first_rank=request.get("first_rank"),
        record_load_s=request.get("record_load_s", 0.0),
    )
