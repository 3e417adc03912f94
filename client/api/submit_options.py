"""The options of `Client.submit`, for type checkers and editors."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TypedDict


class SubmitOptions(TypedDict, total=False):
    """Optional options of a job, named as those of ``jobsub``, whose help explains them."""

    #: By default the name of the program.
    name: str
    #: ``mpi``, ``uni`` (one process) or ``script``; by default ``script`` for scripts such as
    #: ``*.sh`` and ``*.slurm``, else ``mpi``.
    type: str | None
    account: str
    comment: str
    #: Where the server tells about events: a mail address or a URL. Which events: by default
    #: ``"end,fail"``.
    notify: str
    notify_on: str
    #: Strategies that use priorities start jobs with higher ones first.
    priority: int
    #: Hold the job until ``release``.
    hold: bool
    #: The jobs that must have ended before, such as ``"afterok:12"``.
    dependency: str
    #: Numbers of the tasks of an array, such as ``"1-1000%50"`` (at most 50 at once).
    array: str
    #: Signal to send before the time limit, such as ``"USR1@60"``; needs ``time_limit_s``.
    signal: str
    #: Text of a script to run instead of a program; ``argv`` are then its arguments.
    script: str | None
    #: Folder of the job; by default that of this process.
    chdir: str | os.PathLike[str] | None
    #: Files; ``%j`` is the id of the job. By default nothing is read, and all output goes to
    #: ``pliant-%j.out``.
    stdin: str | os.PathLike[str]
    stdout: str | os.PathLike[str]
    stderr: str | os.PathLike[str]
    #: What happens to files of output that exist: ``truncate`` or ``append``.
    open_mode: str
    #: Seconds between rows of the record of the load, from 0.01 to 60. By default there is none.
    record_load_s: float | None
    #: Environment variables; by default those of this process.
    env: Mapping[str, str] | None
    #: Number of processors that suits the job best, one of ``sizes``.
    prefer: int | None
    #: Speedup model: ``linear``, ``none``, ``amdahl:0.9``, ...
    speedup: str
    #: When the job is offered growth: if it gains enough (``gain``), or ``always``.
    grow_if: str | None
    #: Seconds after which the job is ended.
    time_limit_s: float | None
    #: Seconds that the job needs.
    estimate_s: float | None
    #: Deadline in seconds from now, or in seconds since the epoch.
    deadline_s: float | None
    deadline_at: float | None
    #: Earliest start in seconds from now, or in seconds since the epoch.
    begin_s: float | None
    begin_at: float | None
    #: Profit if it meets the deadline, such as ``100`` or ``"1000:soft=0.25:penalty=50"``.
    profit: str | float
    #: Properties of nodes, such as ``"infiniband"``.
    constraint: str
    #: Nodes to use and nodes not to use, such as ``"n[01-16]"``.
    nodelist: str
    exclude: str
    #: How ranks are bound to CPUs: ``rank``, ``node`` or ``none``.
    bind: str
    #: Processors of each component, such as ``[4, 2]``, instead of ``sizes``.
    components: Sequence[int]
    #: Memory of each process: ``"4G"``, or bytes.
    mem_per_cpu: str | int
    #: GPUs of each process, and other generic resources, such as ``["fpga:1"]``.
    gpus: int
    gres: Sequence[str]
    #: Named resources of the cluster, such as ``["matlab=1/proc"]``.
    resources: Sequence[str]
    #: Whether the job is started again after a failure of a node. By default it is if it can change
    #: its size and has a checkpoint.
    requeue: bool | None
    #: What happens to processes that the server cannot reach: ``keep`` or ``stop-after=30s``.
    when_cut_off: str
