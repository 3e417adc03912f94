"""The error of an operation on a host."""

from __future__ import annotations


class HostError(Exception):
    """An operation that ``pliant deploy`` runs on this host failed; the text says why."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        #: What an administrator can do.
        self.remedy = remedy
