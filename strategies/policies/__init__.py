"""Building blocks of strategies: queue orders, backfilling, placement, growth, valuation.

A policy answers one question, for example which job starts next. The strategies one level above
combine policies.
"""
