"""The root helper as a real process, with users that only it sees, and a stand-in controller."""

from helperkit.controller import FakeController
from helperkit.helper import ACCOUNT, ALICE, BOB, CLUSTER, NODE, Helper, needs_root
from helperkit.programs import python_for_all
from helperkit.site import Site

__all__ = [
    "ACCOUNT",
    "ALICE",
    "BOB",
    "CLUSTER",
    "NODE",
    "FakeController",
    "Helper",
    "Site",
    "needs_root",
    "python_for_all",
]
