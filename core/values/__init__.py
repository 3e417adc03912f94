"""Small immutable values: identifiers, processor sets, sizes, speedups, prices, limits.

A value is checked when it is made and never changes. State and rules do not belong here. Start with
`processors`, whose sets are used everywhere, and `sizes`, the grammar of ``jobsub -n``.
"""
