"""Pictures of jobs and processors over time: what each job held, the geometry, SVG and PNG.

The live page, ``pliant gantt`` and the simulator show the same thing: a job is a band, and its
height is the number of processors that the job holds. `allocations_from_history` computes from the
history what jobs hold, `layout` says where bands lie, and `timeline` draws them. The page follows
the same rules in ``client/dashboard/static/js/layout.js``; a test compares both on the same jobs.

May import: the standard library, ``pliant.core``, and matplotlib for PNG.
"""
