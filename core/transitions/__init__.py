"""Steps that several handlers share: allocate, resize, suspend, end a job, fence a node.

A transition changes the state and adds commands. It never decides which event it serves; that is
the job of `pliant.core.handlers`. A resize starts in `resize_open_close` and continues in
`resize_after_agreement`.
"""
