"""The kinds of data that a program can register.

`block` is the simplest distributed kind and the best one to read first. `pliant.appkit.job_data`
holds everything that one job has registered. To add a kind, implement
`pliant.appkit.data.registered_data.RegisteredData` and add a method to
`pliant.appkit.register_arrays`.
"""
