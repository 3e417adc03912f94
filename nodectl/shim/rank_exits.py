"""Handle the end of a rank: end its remaining processes, save and report its exit.

Leftovers are processes that a rank started and that are still running. The exit of a rank is
reported only when it has no leftovers, because its processor counts as free from then on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pliant.faults import failpoint
from pliant.nodectl.host.log_to_stderr import write_line
from pliant.nodectl.host.oom import MemoryKills
from pliant.nodectl.shim import rank_termination
from pliant.nodectl.shim import ranks as rank_processes
from pliant.nodectl.shim.event_loop import EventLoop, ScheduledCall
from pliant.nodectl.shim.rank_fork_exec import read_failures
from pliant.nodectl.shim.ranks import Rank
from pliant.nodectl.world_folder import SpooledExit, StartRequest, WorldFolder

#: Seconds that leftovers get to end after SIGTERM, at most.
_LEFTOVER_GRACE_S = 2.0

#: Seconds between two rounds of killing leftovers that do not go.
_KILL_INTERVAL_S = 0.1

#: Seconds until exits that could not be saved, as on a full disk, are tried again.
SAVE_RETRY_S = 1.0


class ExitCallbacks(NamedTuple):
    """Functions of the shim that an `ExitTracker` calls when ranks end."""

    #: All ranks have ended without leftovers; the last exits are not saved yet.
    on_all_gone: Callable[[], None]
    #: These exits are in the spool, or are kept here until the disk has room.
    on_exits: Callable[[list[SpooledExit]], None]
    #: All exits are saved.
    on_done: Callable[[], None]
    #: Adds to an exit what only the shim knows, before it is saved.
    complete: Callable[[SpooledExit], None]
    #: Returns whether the last exits must not be reported yet. `ExitTracker.update` is called
    #: again as soon as they can be.
    must_wait: Callable[[list[SpooledExit]], bool]


class ExitTracker:
    """Handles the end of ranks: waits for leftover processes, then saves and reports the exit."""

    def __init__(
        self, loop: EventLoop, spool: WorldFolder, request: StartRequest, callbacks: ExitCallbacks
    ) -> None:
        self._loop = loop
        self._spool = spool
        self._request = request
        self._callbacks = callbacks
        self._memory = MemoryKills(request.memory_bytes, request.node_name)
        self._ranks: dict[int, Rank] = {}
        #: Ended ranks that have leftovers, with the timer of the next kill.
        self._leaving: dict[int, ScheduledCall | None] = {}
        self._failed: dict[int, tuple[int, str]] = {}  # failed launches, by process id
        self._waiting: list[SpooledExit] = []
        self._unsaved: list[SpooledExit] = []
        self._saving: ScheduledCall | None = None
        #: The exits that were passed on, by rank.
        self.exits: dict[int, SpooledExit] = {}
        #: The pipe into which ranks write why they could not be launched.
        self._failures, self.failure_pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def watch(self, ranks: dict[int, Rank]) -> None:
        """Begin to handle the ends of these ranks; those that were never started count as ended."""
        self._ranks = ranks
        for rank in ranks.values():
            if not rank.live:
                self.add_ended(rank)

    def add_ended(self, rank: Rank) -> None:
        """Record that the process of a rank has ended; call `update` afterwards."""
        self._leaving[rank.rank] = None

    def update(self) -> None:
        """Handle ranks whose processes have ended.

        If no process that such a rank has started is left, report the exit of the rank. Otherwise
        end these processes first.
        """
        done, self._waiting = self._waiting, []
        for number in list(self._leaving):
            left = rank_termination.leftovers(self._ranks.values(), self._ranks[number])
            if not left:
                timer = self._leaving.pop(number)
                if timer is not None:
                    timer.cancel()
                self._failed |= read_failures(self._failures)
                end = rank_processes.exit_of(self._ranks[number], self._failed, self._memory)
                self._callbacks.complete(end)
                done.append(end)
            elif self._leaving[number] is None:
                self._end_leftovers(number, left)
        if len(self.exits) + len(done) == len(self._ranks):
            if done and self._callbacks.must_wait(done):
                self._waiting = done
                return
            self._callbacks.on_all_gone()
        if done:
            failpoint("shim.exits.before_save")
            self._unsaved += done
            self._save()
            failpoint("shim.exits.saved")
            self.exits |= {end.rank: end for end in done}
            self._callbacks.on_exits(done)
        self.call_if_done()

    def close(self) -> None:
        """Close the pipe for error reports of failed launches."""
        os.close(self._failures)
        os.close(self.failure_pipe)

    def _save(self) -> None:
        """Save exits in the spool; if that fails, keep them and try again later."""
        if not self._unsaved:
            return
        try:
            self._spool.save_exits(self._unsaved)
        except FileNotFoundError:
            pass  # the server has acknowledged all of them, and the folder was removed
        except OSError as error:
            if self._saving is None:
                world = self._request.world
                write_line(f"{world}: cannot note ends, trying on: {error}")
            else:
                self._saving.cancel()
            self._saving = self._loop.after(SAVE_RETRY_S, self._save_again)
            return
        self._unsaved, self._saving = [], None

    def _save_again(self) -> None:
        self._save()
        self.call_if_done()

    def call_if_done(self) -> None:
        """Call the callback `on_done` if all ranks have ended and their exits are saved."""
        if len(self.exits) == len(self._ranks) and not self._unsaved:
            self._callbacks.on_done()

    def _end_leftovers(self, number: int, left: Iterable[int]) -> None:
        """Send SIGTERM to processes that an ended rank left running; kill them after a time."""
        rank_termination.ask_all_to_end(left)
        grace = min(self._request.grace_s, _LEFTOVER_GRACE_S)
        self._leaving[number] = self._loop.after(grace, lambda: self._kill_leftovers(number))

    def _kill_leftovers(self, number: int) -> None:
        """Kill the processes that an ended rank left running, repeatedly until none remains.

        A process that was started during one round is found in the next.
        """
        left = rank_termination.stop_leftovers(self._ranks.values(), self._ranks[number])
        rank_termination.kill_all(left)
        if left:
            again = self._loop.after(_KILL_INTERVAL_S, lambda: self._kill_leftovers(number))
            self._leaving[number] = again
        self.update()
