"""The files of checkpoints and of data that are prefetched: private folders, chunks, readers.

Files are only opened in folders to which no other account can write (`private_folders`).
"""
