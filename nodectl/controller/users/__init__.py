"""Worlds of other users, which the root helper of the node starts and ends.

`user_worlds` starts them and listens for their shims, `helper_client` sends requests to the helper.
`pliant.nodectl.root_helper` is the code of the helper.
"""
