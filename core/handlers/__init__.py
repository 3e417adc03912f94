"""One module for each group of events. `pliant.core.state_machine` maps events to these functions.

A handler takes the state and one event. Steps that more than one handler needs belong in
`pliant.core.transitions`. Start with `submission` and `planning`: they take a job from the queue to
its processors.
"""
