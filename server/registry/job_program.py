"""The program of a job: stored in the database and sent to the nodes, unknown to the core."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from pliant.core.arrays.task_numbers import parse_array
from pliant.core.values.ids import JobId, task_job
from pliant.protos.staging.environment_variables import STAGE_ARCHIVE, STAGE_OUTPUTS

#: Lists show this many characters of a command line.
COMMAND_SHOWN = 200


class Summary(NamedTuple):
    """Output file, folder and command line of a program. They are shown in lists of jobs."""

    stdout: str
    cwd: str
    command: str

    def to_json(self) -> str:
        """Return the object as JSON in ASCII. Bytes that are not UTF-8 survive as escapes."""
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str) -> Summary:
        """Return the summary that ``to_json`` has written as JSON."""
        values = json.loads(text)
        return cls(**{name: values[name] for name in cls._fields})


@dataclass(frozen=True, slots=True)
class Program:
    """Command line, environment and files of a job.

    Bytes that are no valid UTF-8 are kept as surrogate escapes.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    stdin: str
    stdout: str
    stderr: str
    umask: int
    #: ``truncate`` if the first run empties its output files, else ``append``.
    open_mode: str = "truncate"
    #: How ranks are bound to CPUs: ``rank``, ``node`` or ``none``, see `StartWorld.bind`.
    bind: str = "rank"
    #: Seconds between rows of the record of its load; 0 if the load is not recorded.
    record_load_s: float = 0.0
    #: Whether names of files have marks that each node replaces.
    files_by_node: bool = False
    #: The tasks of an array, such as ``1-9:2``; the names of its files still have marks of tasks.
    tasks: str = ""

    def to_json(self) -> str:
        """Return the object as JSON in ASCII. Bytes that are not UTF-8 survive as escapes."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> Program:
        """Return the program that ``to_json`` has written as JSON."""
        values = json.loads(text)
        values["argv"] = tuple(values["argv"])
        return cls(**{name: values[name] for name in cls.__slots__ if name in values})

    def summary(self) -> Summary:
        """Return what a list of jobs shows of the program."""
        return Summary(self.stdout, self.cwd, shlex.join(self.argv)[:COMMAND_SHOWN])

    def of_task(self, array: int, task: int) -> Program:
        """Return the program of one task of an array; ``self`` must be the program of the array."""
        numbers = parse_array(self.tasks).numbers
        variables = {
            "PLIANT_ARRAY_JOB": array,
            "PLIANT_ARRAY_TASK": task,
            "PLIANT_ARRAY_COUNT": len(numbers),
            "PLIANT_ARRAY_MIN": numbers.first,
            "PLIANT_ARRAY_MAX": numbers.last,
            "PLIANT_ARRAY_STEP": numbers.step,
        }
        by_node = self.files_by_node
        return replace(
            self,
            env={**self.env, **{name: str(value) for name, value in variables.items()}},
            stdin=name_of_task(self.stdin, array, task, by_node=by_node),
            stdout=name_of_task(self.stdout, array, task, by_node=by_node),
            stderr=name_of_task(self.stderr, array, task, by_node=by_node),
            tasks="",
        )

    def environment(self, **defaults: str) -> list[bytes]:
        """Return the variables for the job's processes as ``NAME=value`` in bytes.

        The job's own variables take precedence over ``defaults``. Empty defaults are left out.
        """
        merged = {**{name: value for name, value in defaults.items() if value}, **self.env}
        return [os.fsencode(f"{name}={value}") for name, value in merged.items()]


class ProgramOfTask(NamedTuple):
    """The stored form of a task's program: a reference to the program of the task's array."""

    array: int
    task: int

    def to_json(self) -> str:
        """Return this reference as JSON."""
        return json.dumps({"of_task": [self.array, self.task]})

    @classmethod
    def from_json(cls, text: str) -> ProgramOfTask | None:
        """Return the task's reference to its array's program, read from JSON.

        None if the JSON text is a whole program.
        """
        values = json.loads(text)
        return cls(*map(int, values["of_task"])) if "of_task" in values else None


#: Marks in names of files that each task of an array replaces by its own values.
TASK_MARKS = frozenset({"%j", "%a"})
#: Variables of tasks, which a job must not inherit from the task that submits it.
ARRAY_VARIABLES = frozenset(
    f"PLIANT_ARRAY_{name}" for name in ("JOB", "TASK", "COUNT", "MIN", "MAX", "STEP")
)
#: Variables that a job must not inherit from the job that submits it.
JOB_VARIABLES = ARRAY_VARIABLES | {STAGE_ARCHIVE, STAGE_OUTPUTS}
#: Marks in names of files that each rank replaces by its number.
RANK_MARKS = frozenset({"%t"})
#: Marks in names of files that each node or rank replaces by its own values.
PLACE_MARKS = frozenset({"%N", "%n"}) | RANK_MARKS


def has_mark(pattern: str, marks: Iterable[str]) -> bool:
    """Return whether a file name pattern contains one of the marks, such as ``%N``."""
    return any(mark in piece for piece in pattern.split("%%") for mark in marks)


def job_marks(job: int, name: str, user: str) -> dict[str, str]:
    """Return the value of each mark in file names that is the same on all nodes, such as ``%j``."""
    # A name with a slash must not lead to another folder.
    return {
        "%j": str(job),
        "%A": str(job),
        "%x": name.replace("/", "_"),
        "%u": user.replace("/", "_"),
    }


def name_of_task(pattern: str, array: int, task: int, *, by_node: bool) -> str:
    """Return the name of a task's file: ``%a`` becomes the task and ``%j`` the number of its job.

    Args:
        pattern: the name in the program of the array.
        array: the number of the array.
        task: the number of the task.
        by_node: whether other marks in the name, for node or rank, are replaced later.
    """
    values = {"%a": str(task), "%j": str(task_job(JobId(array), task))}
    return expand(pattern, values, PLACE_MARKS if by_node else frozenset())


def node_marks(node: str, number: int) -> dict[str, str]:
    """Return the value of each mark in file names that differs between nodes: ``%N`` and ``%n``.

    Args:
        node: the name of the node.
        number: the place of the node among the nodes of the job, from 0.
    """
    return {"%N": node.replace("/", "_"), "%n": str(number)}


def expand(pattern: str, values: Mapping[str, str], keep: frozenset[str] = frozenset()) -> str:
    """Return a file name whose marks, such as ``%j``, are replaced by their values.

    ``%%`` becomes ``%``. But if ``keep`` names marks that are replaced in a later call, ``%%`` is
    kept for that call, and each percent sign in a value is doubled. Unknown marks are kept.
    """
    if keep:
        known = {mark: value.replace("%", "%%") for mark, value in values.items()}
    else:
        known = {**values, "%%": "%"}
    result, start = [], 0
    while (place := pattern.find("%", start)) >= 0:
        mark = pattern[place : place + 2]
        result += [pattern[start:place], known.get(mark, mark)]
        start = place + 2
    return "".join(result) + pattern[start:]
