"""Variables by which the server tells the nodes of a job that its files are staged.

The signature of a start order covers them like all variables of the job.
"""

from __future__ import annotations

#: ``SIZE:SHA256`` of the archive of the job's files.
STAGE_ARCHIVE = "PLIANT_STAGE_ARCHIVE"
#: Patterns of files that come back, separated by colons; empty for all that are new or changed.
STAGE_OUTPUTS = "PLIANT_STAGE_OUTPUTS"
