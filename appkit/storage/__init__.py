"""The files of checkpoints and of prefetched data: private folders, array files, readers.

Files are only opened in folders to which no other account can write (`private_folders`).
"""
