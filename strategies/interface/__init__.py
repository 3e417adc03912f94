"""The interface of strategies: the base class, the types of views and plans, options, checks.

`base` is the place to start; `plan_check` decides whether a plan fits its view.
"""
