"""Code that runs on the hosts of a cluster, sent there over SSH.

It needs nothing but the standard library of the host's Python, because it runs before Pliant is
installed there. `MODULES` lists what is sent, in the order of imports.
"""

MODULES = (
    "host_error",
    "manifest",
    "accounts",
    "processes",
    "probe",
    "wheels",
    "release_environments",
    "files",
    "daemons",
    "cluster_nodes",
    "shared_folders",
    "removal",
    "agent",
)
