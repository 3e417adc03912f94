"""The state of the core, the view that strategies get of it, and its JSON records.

`core_state` holds all jobs and nodes and collects the commands of a batch. `processor_ledger` keeps
the sums of free and reserved processors. `invariants` says what must always hold.
"""
