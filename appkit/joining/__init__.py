"""Connect joining ranks to the running application: rendezvous listener, handshake, rendezvous.

Rank 0 listens; the protocol is in `rendezvous_authentication` and `protocol_numbers`. The side of
the joining rank is `pliant.appkit.resize.joiner`. No MPI is called here.
"""
