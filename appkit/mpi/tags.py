"""The tags of the library's own messages, all in one place, so that no two uses share one.

They are above the tags of entries, which count from 0, and within the range that MPI guarantees.
Ranks of another version may be at the other end, so a number keeps its use.
"""

#: Items that move between resizes, when entries are rebalanced.
REBALANCE = 32_000
#: Items at the borders of the ranks' blocks that another rank needs.
GHOSTS = 32_001
#: Messages between rank 0 and the other ranks over the joined communicator.
JOINED = 32_002
#: An old rank tells rank 0 that it uses the old communicator again.
BACK = 32_003
#: Rank 0 tells the other old ranks that a joining rank has died, or that none has.
DEATH = 32_004
