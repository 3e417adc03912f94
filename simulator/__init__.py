"""The discrete-event shell around the same core and the same strategies.

A heap of future events drives ``pliant.core`` on a virtual clock; workloads, cost models and
statistics live here. No scheduling or negotiation rule is repeated here.

May import: the standard library, ``pliant.core``, ``pliant.strategies``; numpy in reports only.
"""
