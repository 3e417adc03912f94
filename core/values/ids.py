"""Typed identities.

``run`` counts requeues, ``epoch`` versions an allocation, ``generation`` the server.
"""

from typing import NewType

#: A job, for ever; numbered from 1.
JobId = NewType("JobId", int)
#: One resize transaction and the talk that leads to it; numbered from 1, 0 means "the first start".
ResizeId = NewType("ResizeId", int)
#: One scheduling cycle.
CycleId = NewType("CycleId", int)
#: A node, by the name its controller registered.
NodeName = NewType("NodeName", str)

#: The world of a job's first start: no resize made it.
FIRST_START = ResizeId(0)
