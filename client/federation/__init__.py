"""A federation: a grid server whose nodes are stubs, jobs of size 1 at other Pliant servers."""
