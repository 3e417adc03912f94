"""Accounting: phases of jobs (times with the same processors), and the usage of each user."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables of accounting."""
    op.create_table(
        "phase",
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("job", sa.Integer, nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("uid", sa.Integer, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("start", sa.Float, nullable=False),
        sa.Column("end", sa.Float, nullable=False),
        sa.Column("processors", sa.Integer, nullable=False),
        sa.Column("nodes", sa.Text, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("phase_by_end", "phase", ["end"])
    op.create_index("phase_by_job", "phase", ["job"])
    op.create_table(
        "usage",
        sa.Column("account", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, primary_key=True),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )


def downgrade() -> None:
    """Drop the tables of accounting."""
    for table in ("usage", "phase"):
        op.drop_table(table)
