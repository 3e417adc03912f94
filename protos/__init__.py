"""The messages between processes: ``*.proto`` files, Python stubs made from them, and the codec.

``pliant.protos.generate`` makes the stubs, which are committed and never edited by hand. `codec`
and `checkpoint_codec` convert messages to values of ``pliant.core`` and back. `daemons` has what
all daemons need for files and sockets, `identity` keys and certificates, `signed_orders` the orders
that the server signs, `node_joining` join tokens and the messages of joining hosts, `interactive`
the connection of a job with ``pliant run``, and `staging` archives of files. `hmac_handshake`
proves that both sides know a key. The package has no threads and makes no scheduling decisions.

May import: the standard library, ``google.protobuf``, ``grpc`` (stubs only), ``cryptography`` (in
`identity` and `signed_orders` only), ``pliant.core``.
"""
