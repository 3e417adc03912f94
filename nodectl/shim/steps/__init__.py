"""Steps: programs that a script starts on processors of its job, on all nodes of the job."""
