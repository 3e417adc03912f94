"""Environment variables that inform the nodes of a job that its files are staged.

Staged files are sent with the job. The signature of a start order covers these variables like all
variables of the job.
"""

from __future__ import annotations

#: ``SIZE:SHA256`` of the archive of the job's files.
STAGE_ARCHIVE = "PLIANT_STAGE_ARCHIVE"
#: Patterns of outputs to return, separated by colons; empty for all new and changed files.
STAGE_OUTPUTS = "PLIANT_STAGE_OUTPUTS"
