"""Which devices of a node each process of a job gets, such as GPUs 2 and 3.

Devices of one kind on a node are numbered from 0. A process gets the lowest numbers that no job
has there. They are kept until the processor is given back, so they survive a restart of the server.
"""

from collections.abc import Iterable
from itertools import islice

from pliant.core.model.jobs import Job
from pliant.core.state.processor_ledger import ProcessorLedger
from pliant.core.values.processors import ProcessorMap, indices


def assign_devices(
    ledger: ProcessorLedger, jobs: Iterable[Job], job: Job, processors: ProcessorMap
) -> None:
    """Assign the devices that a job needs to its processes on these processors.

    Args:
        ledger: holds the nodes.
        jobs: all jobs that may have devices.
        job: the job.
        processors: new processors of the job.
    """
    gres = job.node_needs.gres if job.node_needs is not None else {}
    if not gres:
        return
    others = list(jobs)
    for node in ledger.nodes_of(processors):
        mine = processors & node.processors
        for kind, amount in gres.items():
            taken = {
                number
                for other in others
                if other.devices and other.occupied & node.processors
                for processor in indices(other.occupied & node.processors)
                for number in other.devices.get(processor, {}).get(kind, ())
            }
            free = iter([n for n in range(node.gres.get(kind, 0)) if n not in taken])
            for processor in indices(mine):
                job.devices.setdefault(processor, {})[kind] = tuple(islice(free, amount))


def drop_devices(job: Job, processors: ProcessorMap) -> None:
    """Remove a job's device assignments on processors that it gives back."""
    for processor in indices(processors):
        job.devices.pop(processor, None)
