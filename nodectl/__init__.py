"""The per-node controller: starts, watches and ends real processes on one node.

Controller, launcher, shim and the PMI-1 service live here. Only the launcher and the shim fork,
and they never load grpc; the controller itself only spawns. No scheduling lives here: a controller
does what an order says and reports what happened.

May import: the standard library, grpc and other base dependencies, ``pliant.core``,
``pliant.protos``. Never ``pliant.server``, nor SQLAlchemy.
"""
