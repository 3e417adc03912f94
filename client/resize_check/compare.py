"""Compare a resized run of a program with undisturbed ones, and suggest remedies."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: Lines of output that are shown of a difference.
_SHOWN = 5
_NUMBER = re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$")
_UNSET = re.compile(r"(?:UnboundLocalError|NameError):.*?'(\w+)'")

_REMEDY = (
    "ordinary variables are not sent to joining ranks: keep values that the loop changes in "
    "job.state or in a registered array, make others before the loop, and print only under "
    "`if job.first:`"
)


@dataclass(frozen=True)
class ProgramRun:
    """Result of one run of the program."""

    #: Number of processes, and how it was resized, as shown to the user.
    what: str
    exit_code: int | None
    signal: int | None
    output: str
    #: Why the job ended, as the server or this check says.
    reason: str = ""
    #: Why it was not resized as planned; empty if it was.
    refused: str = ""

    @property
    def ending(self) -> str:
        """Return how the program ended, as text: exit code, signal, or the server's reason."""
        if self.exit_code is None and not self.signal:
            return self.reason
        return f"signal {self.signal}" if self.signal else f"exit code {self.exit_code}"


def failed_run(run: ProgramRun) -> str:
    """Return why an undisturbed run cannot be compared with others; empty if it can."""
    if run.exit_code == 0:
        return ""
    return f"{run.what}: {run.ending}; correct this first\n{_error(run)}"


def find_problems(
    runs: tuple[ProgramRun, ProgramRun], disturbed: ProgramRun, tolerance: float
) -> list[str]:
    """Return the differences between a resized run and undisturbed runs, each with a remedy.

    Args:
        runs: two undisturbed runs that succeeded; what differs between them is not compared.
        disturbed: the run that was resized.
        tolerance: relative difference of numbers that is accepted.
    """
    found = []
    if disturbed.refused and disturbed.exit_code is None:
        return [disturbed.refused]  # this check ended it for that reason
    if disturbed.exit_code != 0:
        found.append(f"end: {disturbed.ending}, undisturbed exit code 0\n{_error(disturbed)}")
        if unset := _UNSET.search(disturbed.output):
            found.append(
                f"variable {unset[1]!r}: a joining rank does not have it, because it entered "
                "main() at the top and came to the loop later: keep it in job.state, set it "
                "before the loop, or use it only under `if job.first:`"
            )
        elif not disturbed.refused:
            found.append(f"remedy: {_REMEDY}")
        return [*found, disturbed.refused] if disturbed.refused else found
    if disturbed.refused:
        found.append(disturbed.refused)
    lines = list(_differences(runs[0].output, runs[1].output, disturbed.output, tolerance))
    if lines:
        shown = "\n".join(f"  {line}" for line in lines[:_SHOWN])
        found.append(f"output: {len(lines)} lines differ\n{shown}\n  remedy: {_REMEDY}")
    return found


def _differences(first: str, second: str, third: str, tolerance: float) -> Iterator[str]:
    """Yield the lines in which the output of the third run differs from that of the first two.

    Only what the first two runs have in common is compared.

    Args:
        first: the output of the first undisturbed run.
        second: the output of the second undisturbed run.
        third: the output of the run that was resized.
        tolerance: the relative difference of numbers that is accepted.
    """
    ours, others, resized = first.splitlines(), second.splitlines(), third.splitlines()
    if len(ours) != len(others):
        # Each process prints, perhaps: only what every undisturbed run has is compared.
        common = set(others)
        kept = [line for line in ours if line in common]
        there = set(resized)
        yield from (f"missing: {line}" for line in kept if line not in there)
        return
    for place, (one, two) in enumerate(zip(ours, others, strict=True)):
        if place >= len(resized):
            yield f"missing: {one}"
        elif not _same_line(one, two, resized[place], tolerance):
            yield f"line {place + 1}: {resized[place]!r}, undisturbed {one!r}"
    yield from (f"one more: {line}" for line in resized[len(ours) :])


def _same_line(one: str, two: str, found: str, tolerance: float) -> bool:
    words = one.split(), two.split(), found.split()
    if len(words[0]) != len(words[1]):
        return True  # it is never the same
    if len(words[0]) != len(words[2]):
        return False
    return all(
        a != b or _same_word(a, c, tolerance) for a, b, c in zip(*words, strict=True)
    ) or _close(words, tolerance)


def _close(words: Sequence[Sequence[str]], tolerance: float) -> bool:
    """Return whether a line of the resized run equals that of the first run, within a tolerance.

    Args:
        words: the words of this line in the first, the second and the resized run; those of the
            second are not compared.
        tolerance: the relative difference of numbers that is accepted.
    """
    return all(_same_word(a, c, tolerance) for a, c in zip(words[0], words[2], strict=True))


def _same_word(expected: str, found: str, tolerance: float) -> bool:
    if expected == found:
        return True
    if _NUMBER.match(expected) and _NUMBER.match(found):
        return math.isclose(float(expected), float(found), rel_tol=tolerance, abs_tol=1e-12)
    return False


def lost_variables(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, name) of variables that only the first iteration of a main loop sets.

    A main loop is one over ``job.steps()``. Ranks that join later skip its first iteration, so they
    do not have these variables.
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return
    for main in ast.walk(tree):
        if isinstance(main, ast.FunctionDef):
            for loop in ast.walk(main):
                if isinstance(loop, ast.For) and _counts_steps(loop):
                    yield from _set_first_only(main, loop)


def _counts_steps(loop: ast.For) -> bool:
    call = loop.iter
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "steps"
        and isinstance(loop.target, ast.Name)
    )


def _set_first_only(main: ast.FunctionDef, loop: ast.For) -> Iterator[tuple[int, str]]:
    assert isinstance(loop.target, ast.Name)
    counter = loop.target.id
    guarded = {
        each
        for branch in loop.body
        if isinstance(branch, ast.If) and _is_first(branch.test, counter)
        for statement in branch.body
        for each in _stores(statement)
    }
    others = {each.id for each in _stores(main) if each not in guarded}
    for each in sorted(guarded, key=lambda each: each.lineno):
        if each.id not in others:
            yield each.lineno, each.id


def _stores(node: ast.AST) -> list[ast.Name]:
    return [
        each
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    ]


def _is_first(test: ast.expr, counter: str) -> bool:
    """Return whether a condition is ``COUNTER == 0`` or ``not COUNTER``."""
    match test:
        case ast.Compare(ast.Name(name), [ast.Eq()], [ast.Constant(0)]):
            return name == counter
        case ast.UnaryOp(ast.Not(), ast.Name(name)):
            return name == counter
    return False


def _error(run: ProgramRun) -> str:
    """Return the last lines of a run's output; if there is no output, the server's reason."""
    lines = [line for line in run.output.splitlines() if line.strip()][-_SHOWN:]
    lines = lines or [f"no output; {run.reason}" if run.reason else "no output"]
    return "\n".join(f"  | {line}" for line in lines)
