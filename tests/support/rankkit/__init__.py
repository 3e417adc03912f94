"""Ranks as threads of one process: redistributions between up to dozens, without MPI."""

from rankkit.comm import ThreadComm, run_ranks
from rankkit.resize import Parts, crossing, load, member, resize, save

__all__ = [
    "Parts",
    "ThreadComm",
    "crossing",
    "load",
    "member",
    "resize",
    "run_ranks",
    "save",
]
