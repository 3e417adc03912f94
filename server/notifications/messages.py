"""Decide which messages a line of the job history causes, and compose them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pliant.server.registry.array_tasks import title
from pliant.server.support.notify_rules import TASKS

#: Kinds of lines of the history that can give a message.
KINDS = ("job.started", "array.started", "job.ended", "job.resized", "job.warned")

#: Longest name and longest text in a message, in characters.
MAX_NAME, MAX_TEXT = 200, 1000


def events_of(line: Mapping[str, Any], wanted: frozenset[str]) -> list[str]:
    """Return the events in a line of the history about which its user wants messages.

    A job that ends at its time limit gives the event ``limit`` and one event for the end. An end is
    ``fail`` if the job has failed and the user wants this event, otherwise ``end``.

    Args:
        line: a line of the history.
        wanted: the events about which the user wants messages.
    """
    match line["kind"]:
        case "job.started" | "array.started":
            found = ["start"]
        case "job.resized":
            found = ["resize"]
        case "job.warned":
            found = ["limit"]
        case "job.ended":
            state = line["data"].get("state")
            has_failed = state not in ("COMPLETED", "CANCELLED") and "fail" in wanted
            end = "fail" if has_failed else "end"
            found = ["limit", end] if state == "TIMEOUT" else [end]
        case _:
            found = []
    return [event for event in found if event in wanted]


def wants_messages(info: Mapping[str, Any], wanted: frozenset[str]) -> bool:
    """Return whether a user gets messages about this job, which may be an array or a task.

    An array sends messages either about itself or, if the user has chosen ``tasks``, about each of
    its tasks, as with Slurm.

    Args:
        info: the job.
        wanted: the events that the user has chosen for the job, or for its array.
    """
    if "array" in info:
        return TASKS not in wanted
    return "array_job" not in info or TASKS in wanted


def message_of(
    line: Mapping[str, Any], event: str, info: Mapping[str, Any], cluster: str
) -> dict[str, Any]:
    """Return a message in a form that JSON can store.

    Args:
        line: the line of the history.
        event: the event in this line, by the name that users choose, such as ``end``.
        info: the job.
        cluster: the name of this cluster.
    """
    return {
        "id": f"{cluster}-{line['seq']}-{event}",
        "event": event,
        "time": line["time"],
        "job": info["id"],
        **{name: info[name] for name in ("array_job", "array_task") if name in info},
        "name": plain(info["name"], MAX_NAME),
        "user": plain(info["user"], MAX_NAME),
        "state": line["data"].get("state") or info["state"],
        "exit_code": line["data"].get("exit_code"),
        "size": line["data"].get("to") or info["size"],
        "text": plain(line["text"], MAX_TEXT),
    }


def plain(text: str, limit: int) -> str:
    """Return the first ``limit`` characters of a text as one line of printable characters."""
    line = "".join(c if c.isprintable() else " " for c in text[:limit])
    return line.encode("utf-8", "replace").decode("utf-8")


def subject(message: Mapping[str, Any]) -> str:
    """Return the subject of the mail for a message about a job."""
    words = {
        "start": "started",
        "end": f"ended ({message['state']})",
        "fail": f"failed ({message['state']})",
        "resize": f"has {message['size']} processors",
        "limit": "has reached its time limit" if message["state"] == "TIMEOUT" else "ends soon",
    }
    job = title({**message, "id": message["job"]})
    return f"Pliant job {job} ({message['name']}) {words[message['event']]}"
