"""The folders of checkpoints: one for each job, and whether each node shares them.

`checkpoint_folders` names, makes and removes the folders. `shared_folder_probe` tests with each
node that registers whether it sees the same files. The removals that nodes carry out, because the
folders belong to users, are ordered in `pliant.server.rpc.checkpoint_removals`.
"""
