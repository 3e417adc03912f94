"""A stand-in for server, controllers and shims: starts worlds of real ranks, drives resizes."""

from standin.application import Application
from standin.server import Server
from standin.world import World

__all__ = ["Application", "Server", "World"]
