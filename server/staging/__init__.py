"""The staged files of jobs (input files and outputs) while they are on the server's disk.

They are on their way between the submission folder and the nodes.
"""
