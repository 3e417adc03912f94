"""The kinds of data that a program can register.

`block_array` is the simplest distributed kind and the best one to read first.
`pliant.appkit.registered_objects` holds everything that one job has registered. To add a kind,
implement `pliant.appkit.data.registered_data.RegisteredData` and add a method to
`pliant.appkit.register_arrays`.
"""
