"""The thread that asks the program about proposals."""

import queue
import threading
from typing import Protocol

from pliant.appkit.coordinator.coordinator import Coordinator
from pliant.core.model.negotiation import Template


class AnswerChannel(Protocol):
    """The connection on which a proposal arrived, and on which the answer to it is sent."""

    def send_answer(self, reply: Template) -> None:
        """Send ``reply``, the message that contains the program's answer to a proposal."""


class OfferThread:
    """Asks the program about proposals, in a thread of its own.

    So an ``on_offer`` that takes long, or never returns, delays no other message of the stream.
    """

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._waiting: queue.SimpleQueue[tuple[AnswerChannel, Template] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._run, name="pliant-offers", daemon=True)

    def start(self) -> None:
        """Start the thread; called once for all streams."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread when all queued proposals have been answered; do not wait for it."""
        self._waiting.put(None)

    def put(self, channel: AnswerChannel, template: Template) -> None:
        """Queue a proposal of the server, so that the program answers it in the offer thread.

        Args:
            channel: the connection on which the answer is sent.
            template: the message with the proposal.
        """
        self._waiting.put((channel, template))

    def _run(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            channel, template = waiting
            reply = self._coordinator.answer_offer(template)
            if reply is not None:
                channel.send_answer(reply)
