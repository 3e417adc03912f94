"""Variables of MPICH for worlds (sets of ranks started together) that others may join later."""

#: Algorithms for collectives that do not depend on which ranks share a node; see JOINED_WORLDS.
FLAT_COLLECTIVES = {
    "MPIR_CVAR_ENABLE_SMP_COLLECTIVES": "0",
    "MPIR_CVAR_ALLGATHER_COMPOSITION": "2",
    "MPIR_CVAR_ALLREDUCE_COMPOSITION": "2",
    "MPIR_CVAR_ALLTOALL_COMPOSITION": "2",
    "MPIR_CVAR_BARRIER_COMPOSITION": "2",
    "MPIR_CVAR_BARRIER_INTRA_ALGORITHM": "k_dissemination",
    "MPIR_CVAR_BCAST_COMPOSITION": "3",
    "MPIR_CVAR_REDUCE_COMPOSITION": "3",
    "MPIR_CVAR_SCAN_INTRA_ALGORITHM": "recursive_doubling",
}

#: For jobs that may grow. MPICH knows on which node a rank is only for the ranks of its own world,
#: and takes all ranks of a world that was joined later for one node. So ranks of two worlds
#: disagree about who shares a node, and an operation that works node by node hangs. The algorithms
#: above help most collectives, but not windows, Ireduce or Comm.Idup (measured with
#: benchmarks/bench_operations.py). NOLOCAL helps all: every rank is a node of its own. Its price is
#: that ranks of a node talk through the transport (benchmarks/bench_without_shared_memory.py), so
#: jobs of one size keep shared memory.
JOINED_WORLDS = {**FLAT_COLLECTIVES, "MPIR_CVAR_NOLOCAL": "1"}
