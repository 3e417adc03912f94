"""``pliant demo``: a small cluster with jobs that are resized, and checks of what happened."""
