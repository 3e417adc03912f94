"""The kernel's interfaces: /proc, control groups, shared memory, limits. Standard library only."""
