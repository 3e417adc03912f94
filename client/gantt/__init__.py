"""``pliant gantt``: pictures of the processors that jobs held over time (see docs/gantt.md)."""
