"""Interfaces of the kernel: /proc, control groups, shared memory, limits; standard library only."""
