"""Ranks as threads of one process: redistributions between up to dozens, without MPI."""

from rankkit.comm import ThreadComm, run_ranks
from rankkit.resize import Parts, load, member, rank_map, resize, save

__all__ = [
    "Parts",
    "ThreadComm",
    "load",
    "member",
    "rank_map",
    "resize",
    "run_ranks",
    "save",
]
