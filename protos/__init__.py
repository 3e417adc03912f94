"""The wire contracts: ``*.proto`` files, their committed stubs and the one codec.

Here live the protobuf definitions, the stubs that ``pliant.protos.generate`` makes from them
(committed, never edited by hand), and ``codec``, the only module that turns messages into the
dataclasses of ``pliant.core`` and back. No behaviour lives here: no threads, no defaults that a
peer cannot see on the wire; but what all daemons do alike to sockets (`sockets`) and small files
(`files`).

May import: the standard library, ``google.protobuf``, ``grpc`` (stubs only), ``pliant.core``.
"""
