"""Accounting: the sizes of malleable steps over time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns ``sizes`` and ``processor_s`` (processor seconds) to the table of steps.

    The processor seconds of earlier steps are computed from their largest size.
    """
    op.add_column("step", sa.Column("sizes", sa.Text, nullable=False, server_default="[]"))
    op.add_column("step", sa.Column("processor_s", sa.Float, nullable=False, server_default="0"))
    op.execute('UPDATE step SET processor_s = processors * ("end" - start)')


def downgrade() -> None:
    """Drop the columns ``sizes`` and ``processor_s``."""
    op.drop_column("step", "processor_s")
    op.drop_column("step", "sizes")
