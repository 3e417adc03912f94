"""The shim: starts the ranks of one world on this node, serves PMI, records their exits.

A shim outlives its controller. It forks, so nothing here uses threads or gRPC.
`run_successive_worlds` is the main loop of the process, `shim` serves one world, and `pmi_protocol`
answers the PMI requests of its ranks, which `pmi_rank_connections` receives.
"""
