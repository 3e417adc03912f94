from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, cast

from pliant.server.rpc.certified_nodes import CertifiedNodes

NODES = 12


def test_many_nodes_that_confirm_certificates_take_one_thread() -> None:
    confirmed, threads = list[str](), set[int]()
    may_go_on, all_done = threading.Event(), threading.Event()

    def confirm(name: str, _: int) -> None:
        may_go_on.wait(60)
        threads.add(threading.get_ident())
        confirmed.append(name)
        if len(confirmed) == NODES:
            all_done.set()

    admission = SimpleNamespace(
        has_earlier_certificates=lambda _: True, nodes=SimpleNamespace(confirm=confirm)
    )
    nodes = CertifiedNodes(cast(Any, None), cast(Any, admission), lambda *_: None)

    async def connect() -> None:
        with ExitStack() as stack:
            for number in range(NODES):
                node = SimpleNamespace(name=f"n{number}", serial=number)
                stack.enter_context(nodes.connected(cast(Any, node), cast(Any, None)))
            await asyncio.sleep(0)  # the calls begin
            may_go_on.set()
            while not all_done.is_set():
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(connect(), 60))
    assert len(confirmed) == NODES
    assert len(threads) == 1
