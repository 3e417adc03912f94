"""Common parts of all registered data: entries, handles, cell types, metadata.

`registered_data` is the interface that a resize calls. The kinds of data that programs register are
in `pliant.appkit.kinds`.
"""
