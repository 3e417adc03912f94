"""``pliant gantt``: pictures of what jobs held over time (see docs/gantt.md)."""
