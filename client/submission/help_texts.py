"""The texts before and after the options in the help of ``jobsub``."""

DESCRIPTION = """\
Submit a job and print its id.

The shell's rules find the program: a name without a slash is searched in the PATH of the job's
environment, and a relative path starts at the present directory. A script in this directory needs
no ./ and, if its name ends with .sh, .bash, .slurm, .sbatch or .job, no permission to execute. The
job runs in this directory and with this environment, unless --chdir and --export name others.
Without a program, or with `-`, jobsub reads a script from standard input.

An option on the command line comes first, then the lines `#JOB OPTIONS` at the head of the script,
~/.config/pliant/jobsub, /etc/pliant/jobsub, and the defaults.
"""

EPILOG = """\
sizes: 4   2-16   1-64:pow2   4-64:x2   3-30:+3   {1,2,4,6,12}
in file names: %j (or %A) is the id of the job, %x its name, %u its user; %N is the name of each
node, and %n the place of the node in the job, from 0. With %N or %n each node writes its own
files, and with %t each rank: %t is its number in the job. In an array, %A is the id of the
array, and %a the number of each task
exit codes: 0 done, 1 the request failed, 2 wrong usage, 3 no server; with --wait the job's own,
128 + the signal when a signal ended it; with --query 0 accepted, 1 not accepted or not known

  jobsub -n 4 python app.py          a job of 4 processors
  jobsub -n 1-8 --prefer 4 ./solver  a job that may change its size
  jobsub --wait run.sh               a script; jobsub ends with the job
  jobsub < run.sh                    a copy of the script, which may change afterwards
  jobsub --wrap 'make && ./test'     a command of the shell
  jobsub --array 1-100%10 ./task.sh  a hundred tasks, at most ten at once
  jobsub --dependency afterok:17 x   a job that starts after job 17 has ended without an error
"""
