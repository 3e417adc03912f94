"""First tables: cluster values, nodes, jobs, events, worlds, exits, fences.

A world is a set of ranks that were started together. A fence is a barrier of such a world.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables of the first version."""
    op.create_table(
        "meta",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "node",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("first", sa.Integer, nullable=False),
        sa.Column("slots", sa.Integer, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    _create_job()
    _create_events()
    _create_worlds()


def _create_job() -> None:
    op.create_table(
        "job",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("uid", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("submit", sa.Float, nullable=False),
        sa.Column("start", sa.Float),
        sa.Column("end", sa.Float),
        sa.Column("exit_code", sa.Integer),
        sa.Column("signal", sa.Integer, nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("processors", sa.Integer, nullable=False),
        sa.Column("submit_key", sa.Text),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("program", sa.Text, nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
        sa.UniqueConstraint("uid", "submit_key", name="job_once_per_key"),
    )
    op.create_index("job_by_state", "job", ["state"])
    op.create_index("job_by_end", "job", ["end"])


def _create_events() -> None:
    op.create_table(
        "job_event",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("job", sa.Integer),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("job_event_by_job", "job_event", ["job"])


def _create_worlds() -> None:
    op.create_table(
        "world",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("job", sa.Integer, sa.ForeignKey("job.id"), nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("resize", sa.Integer, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("processors", sa.Text, nullable=False),
    )
    op.create_index("world_by_job", "world", ["job"])
    op.create_table(
        "rank_exit",
        sa.Column("world", sa.Text, primary_key=True),
        sa.Column("rank", sa.Integer, primary_key=True),
        sa.Column("processor", sa.Integer, nullable=False),
        sa.Column("code", sa.Integer, nullable=False),
        sa.Column("signal", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_table(
        "fence",
        sa.Column("world", sa.Text, primary_key=True),
        sa.Column("sequence", sa.Integer, primary_key=True),
        sa.Column("pairs", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop all tables."""
    for table in ("fence", "rank_exit", "world", "job_event", "job", "node", "meta"):
        op.drop_table(table)
