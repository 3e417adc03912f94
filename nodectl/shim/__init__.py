"""The shim: starts the ranks of one world on this node, serves PMI, records their exits.

A shim outlives its controller. It forks, so nothing here uses threads or gRPC. `shim_process` runs
one world after the other, `shim` is what happens in one world, `pmi_service` answers its ranks.
"""
