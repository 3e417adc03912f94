"""The per-node controller: starts, watches and ends real processes on one node.

Controller, launcher, shim and the PMI-1 service live here. Only the launcher and the shim fork,
and they never load grpc; the controller only spawns the launcher. No scheduling lives here: a
controller carries out orders and reports what happened.

May import: the standard library, grpc and other base dependencies, ``pliant.core``,
``pliant.protos``. Never ``pliant.server``, nor SQLAlchemy.
"""
