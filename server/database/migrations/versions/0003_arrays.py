"""Job arrays: the array of a task, and the largest task number of an array."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns ``array`` and ``last_task``, which are empty in jobs of earlier versions."""
    op.add_column("job", sa.Column("array", sa.Integer))
    op.add_column("job", sa.Column("last_task", sa.Integer))
    op.create_index("job_by_array", "job", ["array"])


def downgrade() -> None:
    """Drop the columns ``array`` and ``last_task``."""
    op.drop_index("job_by_array", "job")
    with op.batch_alter_table("job") as table:
        table.drop_column("last_task")
        table.drop_column("array")
