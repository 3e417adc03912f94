"""The staged files of jobs on the server's disk, between the submission folder and the nodes."""
