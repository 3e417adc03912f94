"""Simulate what would happen to the present queue of a server under other strategies.

``python -m pliant.simulator.what_if`` is the process in which ``pliant what-if`` simulates.

May import: ``simulator.inputs`` and ``simulator.run``.
"""
