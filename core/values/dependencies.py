"""Dependencies on other jobs: ``afterok:17:18,singleton``, as in Slurm.

A dependency is *met* when the other job has reached what it names, *impossible* when the other job
has ended otherwise, and *open* until then.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from pliant.core.values.ids import JobId, task_job

#: Maximum number of other jobs that one job may name.
MAX_DEPENDENCIES = 100


class DependencyKind(StrEnum):
    """What must happen to the other job for a dependency to be met."""

    #: It has started, or has ended without.
    AFTER = "after"
    #: It has ended as COMPLETED.
    AFTER_OK = "afterok"
    #: It has ended in another state than COMPLETED.
    AFTER_NOT_OK = "afternotok"
    #: It has ended.
    AFTER_ANY = "afterany"
    #: All earlier jobs of the same user and name have ended. Names no job.
    SINGLETON = "singleton"


class Dependency(NamedTuple):
    """One condition on another job. All conditions of a job must be met."""

    kind: DependencyKind
    #: The other job. 0 for ``singleton``.
    job: JobId = JobId(0)
    #: The array of which the other job was named as a task. 0 if it was not.
    array: JobId = JobId(0)

    def __str__(self) -> str:
        return f"{self.kind}:{self.title}" if self.job else self.kind.value

    @property
    def title(self) -> str:
        """Return the other job as users write it: ``17``, or ``17_3`` for a task of an array."""
        return f"{self.array}_{self.job - self.array - 1}" if self.array else str(self.job)

    @property
    def sentence(self) -> str:
        """Return the condition as text that can follow "waits for"."""
        return _SENTENCES[self.kind].format(job=self.title)


_SENTENCES = {
    DependencyKind.AFTER: "job {job} to start",
    DependencyKind.AFTER_OK: "job {job} to end without an error",
    DependencyKind.AFTER_NOT_OK: "job {job} to fail",
    DependencyKind.AFTER_ANY: "job {job} to end",
    DependencyKind.SINGLETON: "earlier jobs of the same name to end",
}
_KINDS = {kind.value: kind for kind in DependencyKind}
FORMS = "write KIND:JOB[:JOB...], as in afterok:17, afterok:17_3 or after:17:18,singleton"
_NUMBER = re.compile(r"([0-9]{1,18})(?:_([0-9]{1,9}))?")


def parse_dependencies(text: str) -> tuple[Dependency, ...]:
    """Return the dependencies of a text such as ``afterok:17:18,singleton``, each once.

    Raises:
        ValueError: the text is not a list of this form, or names too many jobs.
    """
    found: dict[Dependency, None] = {}
    for part in filter(None, text.split(",")):
        name, *numbers = part.strip().split(":")
        kind = _KINDS.get(name)
        if kind is None:
            raise ValueError(f"{name!r} is unknown; the kinds are {', '.join(_KINDS)}")
        if (kind is DependencyKind.SINGLETON) == bool(numbers):
            raise ValueError(f"{part!r}: {FORMS}")
        for number in numbers or ("0",):
            match = _NUMBER.fullmatch(number)
            if match is None:
                raise ValueError(f"{part!r}: {number!r} is not the number of a job; {FORMS}")
            if numbers and not int(match[1]):
                raise ValueError(f"{part!r}: there is no job 0")
            found[_on_job(kind, JobId(int(match[1])), match[2])] = None
    if text and not found:
        raise ValueError(f"{text!r}: {FORMS}")
    if len(found) > MAX_DEPENDENCIES:
        raise ValueError(f"names {len(found)} jobs, the limit is {MAX_DEPENDENCIES}")
    return tuple(found)


def _on_job(kind: DependencyKind, job: JobId, task: str | None) -> Dependency:
    """Return the dependency on a job, or on the task of an array if ``task`` is given."""
    return (
        Dependency(kind, job) if task is None else Dependency(kind, task_job(job, int(task)), job)
    )


def format_dependencies(dependencies: Iterable[Dependency]) -> str:
    """Return the text of dependencies, which `parse_dependencies` reads."""
    return ",".join(map(str, dependencies))
