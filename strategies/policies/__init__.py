"""Building blocks of strategies: queue orders, backfilling, placement, growth, valuation.

A policy answers one question, for example which job starts next (`queue_order`, `backfill`), which
running jobs give up processors (`donors`), which are suspended (`preemption`), or on which
processors a job runs (`placement`). The strategies one level above combine policies.
"""
