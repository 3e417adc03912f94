"""What ``jobsub`` asks before a submission, or instead of one: --query, --what-if and --bid."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from pliant.client.client_errors import UsageError
from pliant.client.connection import Connection
from pliant.client.terminal.output import print_json

Job = dict[str, Any]


def answer_question(options: argparse.Namespace, job: Job) -> int:
    """Print the answer to ``--query`` or ``--what-if``; return the exit code.

    Args:
        options: the options of ``jobsub``.
        job: in the form of a ``submit`` request.

    Raises:
        UsageError: other options make no sense with the question.
        ClientError: there is no answer.
    """
    option = "--what-if" if options.what_if else "--query"
    for name in ("hold", "wait", "parsable"):
        if getattr(options, name):
            raise UsageError(f"{option} submits no job: leave out --{name}")
    if options.what_if:
        return _what_if(options, job)
    return _query_all(options, job) if options.bid else _query(options, job)


def choose_server(options: argparse.Namespace, job: Job) -> tuple[str, Job]:
    """Ask the servers of ``--bid`` about a job, print their bids, and choose the best one.

    Returns:
        The run folder of the best server, and all bids as plain data for JSON.

    Raises:
        NoServerError: no server answered.
        ClientError: no server would accept the job.
    """
    from pliant.client.forecasts import choose_server_by_bid

    found = choose_server_by_bid.collect_bids(job, choose_server_by_bid.parse_servers(options.bid))
    best = choose_server_by_bid.best_bid(found, options.bid_by)
    if not options.json:
        # Not to standard output, which has the number of the job only, unless nothing is submitted.
        table = choose_server_by_bid.bids_table(found, best)
        print(table, file=sys.stdout if options.query else sys.stderr)
    if best is None:
        raise choose_server_by_bid.no_bid(found)
    records = [choose_server_by_bid.bid_record(bid) for bid in found]
    return best.run, {"server": best.server, "bids": records}


def _what_if(options: argparse.Namespace, job: Job) -> int:
    from pliant.client.forecasts.what_if_command import show_forecast

    if options.query or options.bid:
        raise UsageError("--what-if simulates the queue of one server: leave out --query and --bid")
    show_forecast(options.what_if.split(","), {}, job, as_json=options.json)
    return 0


def _query_all(options: argparse.Namespace, job: Job) -> int:
    """Print the bids of several servers (whether and when each would start the job); return 0."""
    _, bids = choose_server(options, job)
    if options.json:
        print_json(bids)
    return 0


def _query(options: argparse.Namespace, job: Job) -> int:
    """Print the strategy's answer about a job; return exit code 0 if it would accept it, else 1."""
    from pliant.client.terminal.availability_answer import answer_text

    with Connection() as link:
        answer = link.request("query", job=job)
    if options.json:
        print_json({name: value for name, value in answer.items() if name not in {"ok", "now"}})
    else:
        print(answer_text(answer))
    return 0 if answer["accepted"] else 1
