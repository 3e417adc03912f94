"""The live page: ``pliant dashboard`` (see docs/dashboard.md).

`feed` follows the server with one subscription for all browsers, `live_state` is what they see,
`sessions` decides who may read and act, and `web_app` answers requests. The page is in ``static``.
"""
