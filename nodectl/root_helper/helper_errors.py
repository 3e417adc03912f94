"""The errors of the root helper."""

from __future__ import annotations

from pliant.core.support.base_error import PliantError


class HelperConfigError(PliantError):
    """The root helper cannot start: a file, a folder or an option is missing or not safe."""


class HelperRefusalError(PliantError):
    """The root helper refuses a request; ``refusal`` is the reason as a code for programs."""

    def __init__(self, refusal: str, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal
