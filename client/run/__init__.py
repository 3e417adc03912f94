"""``pliant run``: start a step inside a job, or an interactive job outside of one."""
