"""Shared by all commands: argument parser, exit codes, printing, ``--watch``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping

from pliant.client.client_errors import ClientError
from pliant.client.terminal.number_arguments import seconds
from pliant.core.support.command_line import CommandParser

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    from typing import Any, NoReturn

#: Exit code of a command that Ctrl-C ended.
INTERRUPTED = 130
#: Exit code of a command whose reader left, as shells report SIGPIPE.
BROKEN_PIPE = 141


# argparse looks for translations of its words in each parser, which Python does not have. This
# imports ``locale`` and looks into several folders: 1.5 ms of every command.
argparse._ = str  # type: ignore[attr-defined]


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formats help for the width of the terminal.

    argparse makes a formatter for each option that a parser gets, and by itself imports ``shutil``
    to ask for the width: 2 ms of every command.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=terminal_columns() - 2)


def terminal_columns() -> int:
    """Return the width of the terminal in columns; 80 if there is no terminal."""
    chosen = os.environ.get("COLUMNS", "")
    if chosen.isascii() and chosen.isdigit() and int(chosen) > 0:
        return int(chosen)
    if sys.__stdout__ is None:
        return 80
    try:
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or 80
    except (ValueError, OSError):
        return 80  # it is closed, or no terminal


def hint_for_slurm_option(command: str, option: str) -> str:
    """Return the replacement for an option of Slurm; empty if there is none."""
    from pliant.client.slurm_options import HINTS  # here, because only an error needs it

    return HINTS[command].get(option, "")


class Parser(CommandParser):
    """The argument parser of a command; its errors say how to get help."""

    def __init__(self, **settings: Any) -> None:
        settings.setdefault("formatter_class", _HelpFormatter)
        super().__init__(**settings)

    def error(self, message: str) -> NoReturn:
        """Print the error of a wrong usage in the common form, and exit with status 2."""
        print_error(self.prog, f"{message}\n(try `{self.prog} --help`)")
        self.exit(2)


def run_command(prog: str, body: Callable[[], int]) -> int:
    """Run a command's body and return its exit code; errors become one line on stderr."""
    if sys.stdout is None:  # closed by the caller, as `>&-` does
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # until the end
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # until the end
    try:
        code = body()
        sys.stdout.flush()
    except ClientError as error:
        print_error(prog, str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        discard_stdout()
        return BROKEN_PIPE
    except OSError as error:
        print_error(prog, describe(error))
        discard_stdout()
        return 1
    return code


def discard_stdout() -> None:
    """Redirect stdout to /dev/null, so that the interpreter's last flush cannot fail."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass  # it is no file


def check_writable(path: str) -> None:
    """Check that a file can be written, before its content is computed.

    Raises:
        ClientError: the file cannot be written; the text says why, and what to do.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise ClientError(f"output: {path} is a directory; name a file in it")
    if not os.path.isdir(folder):
        raise ClientError(
            f"output: the directory {folder} does not exist; mkdir -p it, or name another"
        )
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise ClientError(f"output: {path} cannot be written; name another file")


def describe(error: OSError) -> str:
    """Return a message for an error of the file system: the file and the cause."""
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "output"
    return f"{path}: {(error.strerror or str(error)).lower()}"


def print_error(prog: str, message: str) -> None:
    """Print an error message to stderr, as ``PROG: MESSAGE``."""
    from pliant.client.terminal.tables import clean

    lines = [clean(line) for line in message.splitlines()] or [""]
    sys.stderr.write(f"{prog}: " + "\n  ".join(lines) + "\n")


def print_text(text: str, *, end: str = "\n") -> None:
    """Print a text and ``end``; escape characters that stdout cannot encode."""
    try:
        print(text, end=end)
    except UnicodeEncodeError:
        print(text.encode("ascii", "backslashreplace").decode("ascii"), end=end)


def print_json(value: object) -> None:
    """Print a value as JSON in plain ASCII."""
    print(json.dumps(value, indent=1))


def print_csv(rows: Iterable[Mapping[str, Any]], fields: Iterable[str]) -> None:
    """Print these fields of each row as CSV.

    A missing value is empty, and the elements of a list are separated by spaces. Unprintable
    characters are escaped, so that each row is one line that no terminal interprets.
    """
    import csv

    from pliant.client.terminal.tables import clean

    names = list(fields)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        values = (row.get(name) for name in names)
        cells = (" ".join(map(str, each)) if isinstance(each, list) else each for each in values)
        writer.writerow([clean(cell) if isinstance(cell, str) else cell for cell in cells])


def with_keys_first(record: dict[str, Any], first: Iterable[str]) -> dict[str, Any]:
    """Return a copy of a record that begins with the keys ``first``; missing keys get None."""
    return {key: record.get(key) for key in first} | record


def name_and_value(text: str) -> tuple[str, str]:
    """Read an option ``NAME=VALUE`` of a strategy, as an argparse type."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=VALUE")
    return name, value


def add_watch_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--watch`` and ``--every``, the options of commands that call `watch`."""
    parser.add_argument(
        "-w", "--watch", action="store_true", help="show the list again and again until Ctrl-C"
    )
    parser.add_argument(
        "--every",
        type=seconds,
        default=1.0,
        metavar="S",
        help="seconds between two lists of --watch (1)",
    )
