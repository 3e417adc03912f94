"""Record the load of a world in a file next to the output of the job (`jobsub --record-load`).

Each node has one file. All worlds of the job on this node append to it, each from its own shim.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import suppress

from pliant.nodectl.host.log_to_stderr import write_line
from pliant.nodectl.host.procfs import COUNTERS, TICKS_PER_S
from pliant.nodectl.shim.event_loop import EventLoop, ScheduledCall
from pliant.nodectl.shim.process_load import ProcessLoad
from pliant.nodectl.shim.rank_fork_exec import LaunchError, open_output, truncate_files
from pliant.nodectl.world_folder import StartRequest, to_bytes

COLUMNS = ("time", "run", "resize", "processes", "resident_bytes", "demand_bytes", *COUNTERS)

#: Largest size of a file: at 10 ms, the record of six hours or more.
MAX_FILE_BYTES = 256 << 20

#: The part of a processor that measurements may take. If they take more, there are fewer of them.
MAX_SHARE = 0.1

#: Seconds between searches for new processes, if measurements are more frequent. The counters of
#: processes that are not found are not lost: their parents have them afterwards.
_SEARCH_S = 0.1

#: Seconds after which rows are written to the file.
_WRITE_S = 1.0

#: Endings of names of output files that the name of the record does not have.
_ENDINGS = (".out", ".log", ".txt")


def record_path(request: StartRequest) -> str:
    """Return the path of the file in which this node records the load of a job.

    Its name is that of the job's output file with ``.load-NODE.csv`` instead of the ending.
    """
    path = request.stdout
    if not path or path.startswith("/dev/"):
        path = os.path.join(request.directory, f"pliant-{request.job}")
    else:
        path = request.file_of(path, None)
    for ending in _ENDINGS:
        if not os.path.basename(path).startswith(ending):
            path = path.removesuffix(ending)
    return f"{path}.load-{request.node_name}.csv"


class LoadRecorder:
    """Writes the memory and processor use of a world (set of ranks) to a file, periodically.

    An error ends the recording, and never the job. It is written to the error file of the job.
    """

    def __init__(
        self, loop: EventLoop, request: StartRequest, *, max_bytes: int = MAX_FILE_BYTES
    ) -> None:
        """Prepare to record; nothing is recorded if ``request`` does not ask for it.

        Args:
            loop: runs the timer.
            request: names the world, its files, and the interval; an interval of 0 s for no record.
            max_bytes: largest size of the file.
        """
        self._loop, self._request, self._max_bytes = loop, request, max_bytes
        self._load = ProcessLoad(os.getpid())
        self._file = -1
        self._rows: list[str] = []
        self._written_at = self._searched_at = 0.0
        self._timer: ScheduledCall | None = None

    def start(self) -> None:
        """Open the file and record the first row; do nothing if the job is not recorded."""
        if not self._request.record_load_s:
            return
        try:
            self._file = self._open()
        except (LaunchError, OSError) as error:
            self._fail(str(error))
            return
        self._written_at = time.monotonic()
        self._sample()

    def measure(self) -> None:
        """Measure without writing a row, before the counters of ended children are lost.

        The shim calls this when it is about to wait for children that have ended.
        """
        if self._file >= 0:
            self._load.measure(search=True)

    def close(self) -> None:
        """Record the last row and close the file."""
        if self._file >= 0:
            self._add_row(search=True)
            self._write()
            self._stop()

    def _open(self) -> int:
        """Open the file with the job's umask, and return its descriptor.

        A new file gets a header row. The file of an earlier submission is emptied first.

        Raises:
            LaunchError: the file cannot be opened, or is not a plain file.
        """
        path = record_path(self._request)
        if self._request.truncate_before:
            truncate_files([path], self._request.truncate_before)
        mask = os.umask(self._request.umask)
        try:
            file = open_output("file", path)
        finally:
            os.umask(mask)
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            os.close(file)
            raise LaunchError(f"{path}: it is not a plain file", 1)
        if not found.st_size:
            self._rows.append(",".join(COLUMNS) + "\n")
        return file

    def _sample(self) -> None:
        """Record a row, and schedule the next one."""
        before = time.process_time()
        now = time.monotonic()
        self._add_row(search=now - self._searched_at >= _SEARCH_S)
        if now - self._written_at >= _WRITE_S:
            self._write()
        if self._file < 0:
            return
        # Multiples of the interval, so that rows of different nodes and worlds can be added.
        interval, wall = self._request.record_load_s, time.time()
        pause = (time.process_time() - before) / MAX_SHARE
        due = (max(wall + pause - interval, wall) // interval + 1) * interval
        if due - wall < interval / 2:  # the clock was set back a little since this row was due
            due += interval
        self._timer = self._loop.after(due - wall, self._sample)

    def _add_row(self, *, search: bool) -> None:
        if search:
            self._searched_at = time.monotonic()
        load = self._load.measure(search=search)
        user, system, *others = load.counters
        request = self._request
        world = f"{request.run},{request.resize}"
        values = (load.processes, load.resident_bytes, load.demand_bytes)
        seconds = (f"{ticks / TICKS_PER_S:.2f}" for ticks in (user, system))
        row = (f"{time.time():.3f}", world, *values, *seconds, *others)
        self._rows.append(",".join(map(str, row)) + "\n")

    def _write(self) -> None:
        """Append the rows to the file in one piece, because other shims append to it, too."""
        data = "".join(self._rows).encode()
        self._rows.clear()
        self._written_at = time.monotonic()
        try:
            if os.fstat(self._file).st_size + len(data) > self._max_bytes:
                self._fail(f"the file has reached its largest size, {self._max_bytes >> 20} MiB")
            else:
                os.write(self._file, data)
        except OSError as error:
            self._fail(error.strerror or str(error))

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _fail(self, reason: str) -> None:
        """Stop recording, and write the reason to the error file of the job."""
        self._stop()
        text = f"the load is not recorded on {self._request.node_name} any more: {reason}"
        write_line(f"{self._request.world}: {text}")
        request = self._request
        path = request.file_of(request.stderr or request.stdout, request.ranks[0][0])
        with suppress(LaunchError, OSError):
            file = open_output("error file", path)
            try:
                os.write(file, to_bytes(f"pliant: {text}\n"))
            finally:
                os.close(file)
