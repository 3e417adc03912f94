"""The wire contracts: ``*.proto`` files, their generated stubs, and the codec.

``pliant.protos.generate`` makes the stubs, which are committed and never edited by hand. `codec`
and `checkpoint_codec` convert messages to values of ``pliant.core`` and back. Package `daemons` has
what all daemons need for files and sockets, package `identity` has keys and certificates, package
`signed_orders` has the orders that the server signs, package `node_joining` has join tokens and the
messages of joining hosts. No threads and no scheduling live here.

May import: the standard library, ``google.protobuf``, ``grpc`` (stubs only), ``cryptography`` (in
`identity` and `signed_orders` only), ``pliant.core``.
"""
