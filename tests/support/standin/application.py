"""One application under the stand-in: what server and controllers would do for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pliant.protos import app_pb2 as pb
from standin.server import TOKEN, Server
from standin.world import World

SECRET = "secret"


class Application:
    """Starts worlds, and carries out grow and shrink as the server would."""

    def __init__(
        self,
        folder: Path,
        argv: list[str],
        size: int,
        server: Server | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.server = server or Server()
        self.output = folder / "output"
        self.codes: list[int] = []
        #: Where each processor's process is: (world, rank in it).
        self.places: dict[int, tuple[World, int]] = {}
        #: By rank.
        self.processors: list[int] = []
        self.epoch = 0
        self._argv, self._environment = argv, environment or {}
        self._resize = 0
        self._next_processor = 0
        self._token = folder / "token"
        self._token.write_bytes(TOKEN)
        self.address_file = folder / "address"
        self.address_file.write_text(self.server.address)
        _, processors = self.launch(size, 0)
        self.processors = processors

    def launch(self, size: int, resize: int) -> tuple[World, list[int]]:
        """Start a world; (world, its processors)."""
        processors = list(range(self._next_processor, self._next_processor + size))
        self._next_processor += size
        env = {
            "PLIANT_JOB": "7",
            "PLIANT_RUN": "1",
            "PLIANT_RESIZE": str(resize),
            "PLIANT_EPOCH": str(self.epoch),
            "PLIANT_ROLE": "join" if resize else "start",
            "PLIANT_APPLICATION_ADDRESS": self.server.address,
            "PLIANT_ADDRESS_FILE": str(self.address_file),
            "PLIANT_TOKEN_FILE": str(self._token),
            "PLIANT_NODE_ADDRESS": "127.0.0.1",
            "PLIANT_PROCESSORS": ",".join(map(str, processors)),
            **self._environment,
        }
        world = World(self._argv, size, env, self.output)
        for rank, processor in enumerate(processors):
            self.places[processor] = (world, rank)
        return world, processors

    def offer(
        self, size: int, resize: int = 0, *, skip_gain_test: bool = False, **terms: Any
    ) -> pb.Template:
        """Offer a total; the answer."""
        if not resize:
            self._resize += 1
        grows = size > len(self.processors)
        item = pb.Item(
            kind="processors",
            quantity=abs(size - len(self.processors)),
            direction=pb.DIRECTION_RECEIVE if grows else pb.DIRECTION_RELEASE,
            sizes=str(size),
            required=True,
            **terms,
        )
        template = pb.Template(
            negotiation=resize or self._resize,
            job=7,
            epoch=self.epoch,
            round=1,
            verb=pb.VERB_OFFER,
            items=[item],
            skip_gain_test=skip_gain_test,
        )
        self.server.send(pb.AppOrder(offer=template))
        return self.server.next("answer").answer

    def go_grow(
        self,
        world: World,
        processors: list[int],
        secret: str = SECRET,
        ranks: list[int] | None = None,
    ) -> None:
        """Say GO to the coordinator and to the joining ranks, or to some of them."""
        go = pb.Go(
            resize=self._resize,
            epoch=self.epoch + 1,
            joining_processors=processors,
            secret=SECRET,
        )
        self.server.send(pb.AppOrder(go=go))
        for rank in range(world.size) if ranks is None else ranks:
            world.order(
                rank, op="join", address=self.rendezvous, secret=secret, resize=self._resize
            )

    def next_hello(self, timeout: float = 60.0) -> pb.Hello:
        """Wait for the next session; remember where its coordinator awaits joining ranks."""
        hello = self.server.hellos.get(timeout=timeout)
        self._rendezvous = hello.rendezvous
        return hello

    @property
    def rendezvous(self) -> str:
        """Where the present coordinator awaits joining ranks."""
        while not self.server.hellos.empty():
            self.next_hello()
        if not hasattr(self, "_rendezvous"):
            self.next_hello()
        return self._rendezvous

    def prepare(self, count: int) -> tuple[World, list[int]]:
        """Offer a growth and start its joining ranks."""
        answer = self.offer(len(self.processors) + count)
        assert answer.verb == pb.VERB_ACCEPT, answer
        world, processors = self.launch(count, self._resize)
        world.wait_ready()
        return world, processors

    def grow(self, count: int) -> pb.Outcome:
        """Add processes; the application's report."""
        world, processors = self.prepare(count)
        self.go_grow(world, processors)
        return self.outcome()

    def shrink(self, ranks: list[int]) -> pb.Outcome:
        """Take ranks away and collect their exit codes; the application's report."""
        answer = self.offer(len(self.processors) - len(ranks))
        assert answer.verb == pb.VERB_ACCEPT, answer
        stays = [rank for rank in range(len(self.processors)) if rank not in ranks]
        if 0 in ranks:
            self.rendezvous  # noqa: B018  # drain
            world, place = self.places[self.processors[stays[0]]]
            world.order(place, op="standby", resize=self._resize)
            hello = self.next_hello()
            assert (hello.role, hello.pending_resize) == (pb.ROLE_STANDBY, self._resize)
            assert list(hello.processors) == self.processors
        leaving = [self.processors[rank] for rank in ranks]
        go = pb.Go(resize=self._resize, epoch=self.epoch + 1, leaving_ranks=ranks)
        self.server.send(pb.AppOrder(go=go))
        outcome = self.outcome()
        for processor in leaving:
            world, place = self.places.pop(processor)
            self.codes.append(world.wait(place))
        return outcome

    def outcome(self) -> pb.Outcome:
        """The next outcome; takes its epoch and processors over."""
        outcome = self.server.next("outcome").outcome
        assert outcome.resize == self._resize
        self.epoch = outcome.epoch
        self.processors = list(outcome.processors)
        return outcome

    def wait(self, timeout: float = 60.0) -> list[int]:
        """Wait for all processes; all exit codes so far."""
        for world, place in self.places.values():
            self.codes.append(world.wait(place, timeout))
        self.places.clear()
        return self.codes

    def close(self) -> None:
        """End what still runs."""
        for world, place in self.places.values():
            world.processes[place].kill()
            world.wait(place)
        self.server.stop()

    def text(self) -> str:
        """What the processes have printed."""
        return self.output.read_text()
