"""The interface of strategies: the base class, the types of views and plans, options, checks."""
