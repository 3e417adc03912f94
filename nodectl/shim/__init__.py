"""The shim: starts the ranks of one world on this node, serves PMI, records how they end.

A shim outlives its controller. It may fork, so nothing here uses threads or gRPC.
"""
