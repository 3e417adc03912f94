"""Subscriptions to changes of jobs, nodes and the history: the operation ``watch``.

`change_feed` collects changes from all threads, `subscription` holds those of one subscriber, and
`streams` makes the messages, with the values that the subscriber may see.
"""
