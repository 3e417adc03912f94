"""A malleable program that answers offers as its argument says, and checks its data in each step.

Arguments: a folder, and a JSON object: ``more`` and ``fewer`` are the answers to offers of more and
of fewer processors (what ``on_offer`` may return, sets as texts or lists, `OfferTerms` as an
object; without one the library decides), ``evolving`` is that of ``malleable``.

Rank 0 writes the number of steps into ``FOLDER/steps``, prints every offer and its request's
answer, and reads ``FOLDER/say``: ``request 9-32`` or ``stop``. While ``FOLDER/hold`` is there no
offer is answered.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

from pliant.appkit import Job, Offer, OfferTerms, malleable

FOLDER = Path(sys.argv[1])
ANSWERS = json.loads(sys.argv[2])
ELEMENTS = 1000
#: Long beside what a step costs: many processes share few processors.
PAUSE_S = 0.05


def order() -> list[str]:
    """Return what the test says, once."""
    try:
        os.rename(FOLDER / "say", FOLDER / "said")
    except FileNotFoundError:
        return []
    return (FOLDER / "said").read_text().split()


def answer(offer: Offer) -> Any:
    word = ANSWERS.get("more" if offer.grows else "fewer")
    price = f" for {offer.price:g}" if offer.price else ""
    last = ", final" if offer.final else ""
    must = ", mandatory" if offer.mandatory else ""
    more = "".join(f" with {amount} of {name}" for name, amount in offer.resources.items())
    what = f"{offer.current} -> {offer.proposed}{more}{price}{last}{must}"
    print(f"offer {what}: {word}", flush=True)
    while (FOLDER / "hold").exists():
        time.sleep(PAUSE_S)
    return OfferTerms(**word) if isinstance(word, dict) else word


@malleable(evolving=ANSWERS.get("evolving", False))
def main(job: Job) -> None:
    data = job.block("data", ELEMENTS, init=lambda index: np.arange(ELEMENTS, dtype=float)[index])
    count = job.state(steps=0)
    job.on_offer(answer)
    told = ""
    for _ in job.steps(10**9):
        comm = job.comm
        total = comm.allreduce(float(data.local.sum()), MPI.SUM)
        assert total == ELEMENTS * (ELEMENTS - 1) / 2 + ELEMENTS * count.steps
        if job.first:
            (FOLDER / "new-steps").write_text(str(count.steps))
            (FOLDER / "new-steps").rename(FOLDER / "steps")
            asked = job.requested
            here = f"{asked.state} with {asked.size}" if asked and asked.done else told
            if here != told:
                print(f"request {here}", flush=True)
            told = here
        words = comm.bcast(order() if comm.rank == 0 else None)
        if words == ["stop"]:
            break
        if words[:1] == ["request"]:
            job.request(words[1], why="the test says so")
        data.local[...] += 1
        count.steps += 1
        time.sleep(PAUSE_S)


main()
