"""The error with which the server answers a request of a user that it does not carry out."""

from __future__ import annotations

from typing import Any

from pliant.core.support.base_error import PliantError


class UserRequestError(PliantError, code="user-request"):
    """A request is invalid or refused; the answer is this error.

    Attributes:
        kind: ``invalid``, ``refused``, ``not_found``, ``unavailable`` (try again later),
            ``stopping`` (the server stops) or ``internal``.
        field: the field of the request that is wrong; empty if it is none.
    """

    def __init__(self, message: str, *, kind: str = "invalid", field: str = "") -> None:
        super().__init__(message)
        self.kind, self.field = kind, field

    def answer(self) -> dict[str, Any]:
        """Return the error as the JSON object that is sent to the user."""
        error = {"kind": self.kind, "field": self.field, "message": str(self)}
        return {"ok": False, "error": error}
