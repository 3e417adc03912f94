"""Ports of the loopback interface that are free."""

from __future__ import annotations

import socket

import pytest

ADDRESS = "127.0.0.1"


def free_ports(count: int) -> int:
    """Return the first of several ports in a row that are free."""
    for _ in range(50):
        with socket.socket() as probing:
            probing.bind((ADDRESS, 0))
            first = int(probing.getsockname()[1])
        if first + count < 65000 and all(_is_free(first + each) for each in range(count)):
            return first
    pytest.skip("no free ports in a row")


def _is_free(port: int) -> bool:
    with socket.socket() as probing:
        try:
            probing.bind((ADDRESS, port))
        except OSError:
            return False
    return True
