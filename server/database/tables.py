"""The tables of the job database.

Values that queries need are columns. The complete object is the JSON in the column ``record``. A
change here needs a migration in ``server/database/migrations/versions`` and a new value of the
constant HEAD.
"""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

#: The newest migration. A database of this version is opened without importing Alembic, which is
#: slow.
HEAD = "0005"

metadata = MetaData()

#: Values by key: cluster identity, keys, generation, the memory of the strategy (`meta_keys`).
meta = Table(
    "meta",
    metadata,
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

node = Table(
    "node",
    metadata,
    Column("name", Text, primary_key=True),
    Column("cluster", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("first", Integer, nullable=False),
    Column("slots", Integer, nullable=False),
    Column("record", Text, nullable=False),
)

job = Table(
    "job",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("uid", Integer, nullable=False),
    Column("state", Text, nullable=False),
    Column("submit", Float, nullable=False),
    Column("start", Float),
    Column("end", Float),
    Column("exit_code", Integer),
    Column("signal", Integer, nullable=False, default=0),
    Column("run", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("processors", Integer, nullable=False),
    #: The client's key of the submission: a second one with the same key gives the same job.
    Column("submit_key", Text),
    Column("record", Text, nullable=False),
    Column("program", Text, nullable=False),
    #: Paths and command line as lists show them.
    Column("summary", Text, nullable=False),
    #: The array of which the job is a task, and the largest task number of an array.
    Column("array", Integer),
    Column("last_task", Integer),
    UniqueConstraint("uid", "submit_key", name="job_once_per_key"),
)
Index("job_by_state", job.c.state)
Index("job_by_end", job.c.end)
Index("job_by_array", job.c.array)

#: The history of jobs and nodes; append-only.
job_event = Table(
    "job_event",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("time", Float, nullable=False),
    Column("job", Integer),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("data", Text, nullable=False),
    sqlite_autoincrement=True,
)
Index("job_event_by_job", job_event.c.job)

#: All worlds ever launched, with the processor of each rank.
world = Table(
    "world",
    metadata,
    Column("name", Text, primary_key=True),
    Column("job", Integer, ForeignKey("job.id"), nullable=False),
    Column("run", Integer, nullable=False),
    Column("resize", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("processors", Text, nullable=False),
)
Index("world_by_job", world.c.job)

#: Exits of processes. A repeated report is acknowledged and otherwise ignored.
rank_exit = Table(
    "rank_exit",
    metadata,
    Column("world", Text, primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("processor", Integer, nullable=False),
    Column("code", Integer, nullable=False),
    Column("signal", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("at", Float, nullable=False),
)

#: Accounting: the steps of scripts. Kept for ever.
step = Table(
    "step",
    metadata,
    Column("world", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("processors", Integer, nullable=False),
    Column("start", Float, nullable=False),
    Column("end", Float, nullable=False),
    Column("code", Integer, nullable=False),
    Column("signal", Integer, nullable=False),
    #: A list of [START, PROCESSORS] as JSON, empty for steps recorded by older versions.
    Column("sizes", Text, nullable=False, server_default="[]"),
    Column("processor_s", Float, nullable=False, server_default="0"),
)

#: Complete barriers of worlds that span nodes, kept as long as a node may ask for them again.
#: The table is called ``fence``, like the messages.
barrier = Table(
    "fence",
    metadata,
    Column("world", Text, primary_key=True),
    Column("sequence", Integer, primary_key=True),
    Column("pairs", Text, nullable=False),
)

#: Accounting: one row for each period in which a job had the same processors. Kept for ever.
phase = Table(
    "phase",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("job", Integer, nullable=False),
    Column("run", Integer, nullable=False),
    Column("user", Text, nullable=False),
    Column("uid", Integer, nullable=False),
    Column("account", Text, nullable=False),
    Column("start", Float, nullable=False),
    Column("end", Float, nullable=False),
    Column("processors", Integer, nullable=False),
    Column("nodes", Text, nullable=False),
    sqlite_autoincrement=True,
)
Index("phase_by_end", phase.c.end)
Index("phase_by_job", phase.c.job)

#: Decayed processor-seconds of each user at a time. The processors that are in use follow from the
#: jobs.
usage = Table(
    "usage",
    metadata,
    Column("account", Text, primary_key=True),
    Column("user", Text, primary_key=True),
    Column("seconds", Float, nullable=False),
    Column("at", Float, nullable=False),
)
