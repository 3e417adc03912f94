"""The terminal of this process in raw mode, so that a program on another host gets every key."""

from __future__ import annotations

import os
import signal
import termios
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any


def may_read() -> bool:
    """Return whether standard input may be read now.

    The kernel stops a process in the background that reads from its terminal.
    """
    try:
        return not os.isatty(0) or os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return True  # it is the terminal of another session


class RawTerminal:
    """Standard input as a terminal in raw mode, which passes Ctrl-C on as a byte.

    It must be created in the main thread, because it handles signals. Its methods may be called in
    any thread.
    """

    def __init__(self) -> None:
        self._former: list[Any] | None = None
        self._lock = threading.RLock()  # a signal handler may interrupt the main thread
        self._on_resize: Callable[[], None] = lambda: None
        signal.signal(signal.SIGWINCH, lambda *_: self._on_resize())
        signal.signal(signal.SIGCONT, self._continue)

    def size(self) -> tuple[int, int]:
        """Return the rows and columns of the terminal; 24 and 80 if they are not known."""
        try:
            size = os.get_terminal_size(0)
        except OSError:
            return 24, 80
        return size.lines, size.columns

    def make_raw(self, on_resize: Callable[[], None]) -> None:
        """Switch to raw mode until `restore` is called.

        Args:
            on_resize: called once now, and in the main thread whenever the size of the terminal has
                changed.
        """
        self._on_resize = on_resize
        on_resize()
        # A process in the background is stopped here by the kernel, until it is in the foreground.
        with self._lock, suppress(termios.error, OSError):
            self._former = termios.tcgetattr(0)
            # TCSADRAIN discards no input, so the program gets what was typed before its start.
            tty.setraw(0, termios.TCSADRAIN)

    def restore(self) -> None:
        """Return to the former mode; do nothing if the terminal is in this mode already."""
        self._on_resize = lambda: None
        with self._lock, _no_stop(), suppress(termios.error, OSError):
            former, self._former = self._former, None
            if former is not None:
                # TCSANOW does not wait for the output, which may be stopped (Ctrl-S).
                termios.tcsetattr(0, termios.TCSANOW, former)

    def _continue(self, _: int, __: FrameType | None) -> None:
        """Set raw mode again when the process continues, because the shell changed the mode."""
        with self._lock, suppress(termios.error, OSError):
            if self._former is not None and may_read():
                tty.setraw(0, termios.TCSANOW)
        self._on_resize()


@contextmanager
def _no_stop() -> Iterator[None]:
    """Within this context, the kernel does not stop this process for changing its terminal.

    Outside of it, the kernel stops a process in the background that changes its terminal.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
