"""Accounting: the steps of scripts, which are the programs that they start with ``pliant run``."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table of steps. Steps of earlier scripts were not recorded."""
    op.create_table(
        "step",
        sa.Column("world", sa.Text, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("processors", sa.Integer, nullable=False),
        sa.Column("start", sa.Float, nullable=False),
        sa.Column("end", sa.Float, nullable=False),
        sa.Column("code", sa.Integer, nullable=False),
        sa.Column("signal", sa.Integer, nullable=False),
    )


def downgrade() -> None:
    """Drop the table of steps."""
    op.drop_table("step")
