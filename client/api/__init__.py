"""The Python client: `Client` and `AsyncClient`, and the values that their methods return.

Programs import these names from ``pliant.client``. `operations` has what both clients do; `client`
and `async_client` differ only in how they wait for the server. `AsyncClient` is imported on its
first use, because asyncio loads slowly.
"""

from pliant.client.api.client import Client
from pliant.client.api.records import Availability, Event, Job, Node, Phase, Usage, Why

__all__ = ["Availability", "Client", "Event", "Job", "Node", "Phase", "Usage", "Why"]
