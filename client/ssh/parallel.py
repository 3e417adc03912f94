"""Do the same work on many hosts at once; a host that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from pliant.client.ssh.session import HostError

Item = TypeVar("Item")
Value = TypeVar("Value")

#: Connections at once: more do not help, because encryption needs one processor here.
MAX_AT_ONCE = 16


def on_hosts(
    hosts: Mapping[str, Item],
    work: Callable[[Item], Value],
    *,
    done: Callable[[str, Value | HostError], None] | None = None,
    at_once: int = MAX_AT_ONCE,
) -> tuple[dict[str, Value], list[HostError]]:
    """Call a function for each host in threads, and collect results and errors.

    Args:
        hosts: the argument of `work` for each host, by the name of the host.
        work: the function; may raise HostError.
        done: called in this thread when a host is done, with its name and the result or error.
        at_once: the largest number of hosts at the same time.

    Returns:
        The results by name, and the errors, both in the order of `hosts`.
    """
    results: dict[str, Value] = {}
    errors: dict[str, HostError] = {}
    if hosts:
        with ThreadPoolExecutor(min(at_once, len(hosts)), thread_name_prefix="host") as pool:
            running = {pool.submit(work, item): name for name, item in hosts.items()}
            for future in as_completed(running):
                name = running[future]
                try:
                    found: Value | HostError = future.result()
                    results[name] = future.result()
                except HostError as error:
                    found = errors[name] = error
                if done is not None:
                    done(name, found)
    return (
        {name: results[name] for name in hosts if name in results},
        [errors[name] for name in hosts if name in errors],
    )
