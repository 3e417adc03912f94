"""A server that is only its side of the wire, and controllers to drive with it."""

from nodekit.node import Node, World
from nodekit.server import FakeServer

__all__ = ["FakeServer", "Node", "World"]
