"""Orders that the server signs and the root helper of a node carries out, once.

`signature_and_validity` holds what all orders have in common. `launch_order` starts processes as a
user; `launch_content` is what such an order covers. `removal_order` removes the checkpoints of a
job. `nonce_window` remembers on the disk which orders a node has carried out.

Nothing here loads protobuf, because the root helper uses these modules.
"""
