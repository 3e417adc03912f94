"""The connection between ``pliant run`` and a process of its interactive job.

`session_address` has the address and the authentication of both sides, `byte_pump` the transfer.
"""
