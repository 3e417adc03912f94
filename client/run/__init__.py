"""``pliant run``: start a step inside a job, or an interactive job outside of one.

`step` requests a step from the shim of the script, the process that started the script on its node.
`interactive` submits a job and shows its output, and `session` serves its input or terminal.
`launch_agent` starts the daemons of other MPI libraries, which call it like ``ssh`` (Open MPI calls
such a program its launch agent).
"""
