"""The names by which UCX knows a network interface, for ``UCX_NET_DEVICES``.

Without this variable UCX uses all devices of a host, among them interfaces that other hosts cannot
reach.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_IFF_LOOPBACK = 0x8


def ucx_devices(interface: str, interfaces: Path = Path("/sys/class/net")) -> str:
    """Return the value of ``UCX_NET_DEVICES`` for a network interface.

    A device for remote direct memory access comes first, then the interface itself for TCP.

    Args:
        interface: its name.
        interfaces: the folder in which the kernel describes interfaces.

    Returns:
        The list; empty if UCX should choose, because the interface is not there or is a loopback
        interface, which UCX does not use by name.
    """
    folder = interfaces / interface
    try:
        if int((folder / "flags").read_text(), 16) & _IFF_LOOPBACK:
            return ""
    except (OSError, ValueError):
        return ""
    port = 1
    with suppress(OSError, ValueError):
        port = int((folder / "dev_port").read_text()) + 1
    devices = list[str]()
    with suppress(OSError):  # no such device
        devices = sorted(os.listdir(folder / "device" / "infiniband"))
    return ",".join([*(f"{device}:{port}" for device in devices), interface])
