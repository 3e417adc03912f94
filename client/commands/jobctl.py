"""``jobctl``: act on one job, and ask about it."""

from __future__ import annotations

import pliant.client.terminal.quick_startup
import pliant.client.terminal.suppress_interrupt_traceback  # noqa: F401

# isort: split

import argparse
import sys
from collections.abc import Sequence

from pliant.client.client_errors import UsageError
from pliant.client.connection import Connection
from pliant.client.terminal.number_arguments import bounded_int, job_name, priority_number
from pliant.client.terminal.output import Parser, print_json, print_text, run_command
from pliant.client.terminal.tables import clean

TYPE_CHECKING = False  # as in `pliant`: commands start sooner without typing

if TYPE_CHECKING:
    from typing import Any

PROG = "jobctl"


def main(argv: Sequence[str] | None = None) -> int:
    """Hold, suspend, requeue or resize a job, and so on; explain why it waits; show its history."""
    options = _parser().parse_args(argv)
    return run_command(PROG, lambda: int(options.act(options)))


def _size(text: str) -> int:
    from pliant.core.support.input_limits import MAX_PROCESSORS

    return bounded_int(0, MAX_PROCESSORS)(text)


def _parser() -> Parser:
    parser = Parser(
        prog=PROG,
        description="Act on a job, or ask about it.",
        epilog="exit codes: 0 done, 1 the request failed, 2 wrong usage, 3 no server",
    )
    actions = parser.add_subparsers(metavar="action", required=True)
    hold = _action(
        actions, "hold", "keep a waiting job from starting until it is released", _request_op
    )
    hold.set_defaults(op="hold")
    release = _action(actions, "release", "let a held job start", _request_op)
    release.set_defaults(op="release")
    priority = _action(actions, "priority", "give a job another priority", _priority)
    priority.add_argument(
        "priority",
        type=priority_number,
        metavar="N",
        help="the new priority; the strategies `priority...` start jobs with higher ones first; "
        "only operators may raise it",
    )
    signal = _action(actions, "signal", "send a signal to all processes of a running job", _signal)
    signal.add_argument("signal", metavar="SIGNAL", help="a name or a number: USR1, SIGUSR1, 10")
    suspend = _action(actions, "suspend", "save a running job, and end its processes", _request_op)
    suspend.set_defaults(op="suspend")
    resume = _action(actions, "resume", "let a suspended job continue", _request_op)
    resume.set_defaults(op="resume_job")
    requeue = _action(
        actions, "requeue", "end a job and start it again, from its last checkpoint", _request_op
    )
    requeue.set_defaults(op="requeue")
    resize = _action(actions, "resize", "offer a running job another size", _resize, _job_or_step)
    resize.add_argument(
        "size",
        type=_size,
        help="the number of processors that the job is to have; 0: the strategy decides again",
    )
    resize.add_argument(
        "--release",
        nargs="+",
        action="extend",
        default=[],
        metavar="NODE[/SLOT]",
        help="processors that the job is to give back: all on a node, or one slot of a node",
    )
    _action(actions, "why", "explain why a job waits, or why it has its size", _why)
    history = _action(actions, "history", "list all events of a job", _history)
    history.add_argument("-f", "--follow", action="store_true", help="show new events until Ctrl-C")
    fetch = _action(
        actions, "fetch", "fetch the outputs of a job with staged files from the server", _fetch
    )
    fetch.add_argument(
        "--to", default="", metavar="DIR", help="a folder other than that of the submission"
    )
    refused = actions.add_parser(
        "refused",
        help="list your refused requests (operators see those of all users)",
        description="List requests that were refused: who asked for what, when, and why.",
    )
    refused.add_argument("--json", action="store_true", help="print JSON")
    refused.set_defaults(act=_refused)
    return parser


def _action(
    actions: Any, name: str, text: str, act: Any, id_type: Any = job_name
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + "."
    )
    step = "; or a step of a script: 17.2" if id_type is _job_or_step else ""
    parser.add_argument("id", type=id_type, help=f"the job, or a task of an array: 17_3{step}")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(act=act)
    return parser


def _ask(op: str, **fields: Any) -> dict[str, Any]:
    with Connection() as link:
        return link.request(op, **fields)


def _request_op(options: argparse.Namespace) -> int:
    _print_answer(_ask(options.op, id=options.id), options)
    return 0


def _priority(options: argparse.Namespace) -> int:
    _print_answer(_ask("priority", id=options.id, priority=options.priority), options)
    return 0


def _signal(options: argparse.Namespace) -> int:
    from pliant.core.support.signals import parse_signal

    try:
        parse_signal(options.signal)
    except ValueError as error:
        raise UsageError(str(error)) from None
    _print_answer(_ask("signal", id=options.id, signal=options.signal), options)
    return 0


def _job_or_step(text: str) -> Any:
    """Return the job that an argument names, or the pair (job, step) for a step."""
    job, point, step = text.partition(".")
    return (
        (bounded_int(1, 1 << 31)(job), bounded_int(1, 1 << 31)(step)) if point else job_name(text)
    )


def _resize_step(job: int, step: int, options: argparse.Namespace) -> int:
    """Set the size of a step of a job script.

    Inside the script of this job, the request is sent to the process that started the script.
    Otherwise it is sent to the server.
    """
    import os

    if options.release:
        raise UsageError("leave out --release: a step gives back its last ranks")
    path = os.environ.get("PLIANT_STEP_SOCKET")
    if path and os.environ.get("PLIANT_JOB") == str(job):
        from pliant.client.step_socket import resize_step

        resize_step(path, step, options.size)
    else:
        _ask("resize", id=job, step=step, size=options.size)
    return 0


def _resize(options: argparse.Namespace) -> int:
    if isinstance(options.id, tuple):
        job, step = options.id
        return _resize_step(job, step, options)
    for place in options.release:
        node, slash, slot = place.partition("/")
        if not node or (slash and not (slot.isascii() and slot.isdecimal())):
            raise UsageError(f"--release {place}: write NODE or NODE/SLOT, as in n2 or n2/0")
    _print_answer(
        _ask("resize", id=options.id, size=options.size, release=options.release), options
    )
    return 0


def _print_answer(answer: dict[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        print_json(
            {key: value for key, value in answer.items() if key != "ok"} | {"id": options.id}
        )
    elif answer.get("message"):
        print_text(clean(answer["message"]))


def _why(options: argparse.Namespace) -> int:
    answer = _ask("why", id=options.id)
    if options.json:
        print_json({"id": options.id, "text": answer["text"], "facts": answer.get("facts") or {}})
    else:
        print_text("\n".join(clean(line) for line in answer["text"]))
    return 0


def _refused(options: argparse.Namespace) -> int:
    events = _ask("refusals")["events"]
    if options.json:
        print_json(events)
        return 0
    from pliant.client.terminal.event_text import refusals_text

    print_text(refusals_text(events))
    return 0


def _fetch(options: argparse.Namespace) -> int:
    from pliant.client.staged_files import fetch_outputs

    with Connection() as link:
        names = fetch_outputs(link, options.id, options.to)
    if options.json:
        print_json({"id": options.id, "files": names})
    else:
        print_text("\n".join(map(clean, names)) or "no outputs wait on the server")
    return 0


def _history(options: argparse.Namespace) -> int:
    from pliant.client.accounting.history import show_history

    return show_history(options.id, follow=options.follow, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
