"""The second screen of a terminal, which leaves the first one and its scrollback untouched."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

from pliant.client.client_errors import NoServerError
from pliant.client.terminal.output import print_text

_ENTER = "\x1b[?1049h\x1b[?7l"  # without wrapping, so that each line of a frame takes one row
_LEAVE = "\x1b[?7h\x1b[?1049l"


class AlternateScreen:
    """Within this context, draw frames on the second screen of the terminal that is stdout.

    The first screen is shown again at the end, also when SIGTERM or SIGHUP ends the command, and
    while Ctrl-Z stops it. If stdout is no terminal, frames are printed one after the other.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()

    def __enter__(self) -> AlternateScreen:
        if self._is_terminal:
            for number in (signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, self._end)
            signal.signal(signal.SIGTSTP, self._stop)
            self._write(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_terminal:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP):
                signal.signal(number, signal.SIG_DFL)
            self._write(_LEAVE)

    def draw(self, text: str) -> None:
        """Show a text; on a terminal it replaces the former text and is cut to the screen."""
        if not self._is_terminal:
            self._write(f"{text}\n")
            return
        lines, rows = text.splitlines(), os.get_terminal_size(sys.stdout.fileno()).lines
        if len(lines) >= rows > 1:
            lines[rows - 2 :] = [f"... {len(lines) - rows + 2} more lines"]
        self._write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")

    @staticmethod
    def _write(text: str) -> None:
        print_text(text, end="")
        sys.stdout.flush()

    @staticmethod
    def _end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    def _stop(self, number: int, _: FrameType | None) -> None:
        self.__exit__()
        os.kill(os.getpid(), number)  # its default action, from which SIGCONT returns
        self.__enter__()


def watch(draw: Callable[[], str], every_s: float) -> int:
    """Show the text that ``draw`` returns every ``every_s`` seconds until Ctrl-C; return 0."""
    try:
        text = draw()  # an error of the first look is not shown on a screen that disappears
        with AlternateScreen() as screen:
            while True:
                screen.draw(text)
                time.sleep(every_s)
                try:
                    text = draw()
                except NoServerError as error:
                    text = str(error)  # it may come back
    except KeyboardInterrupt:
        return 0
