"""Planning on nodes that differ: for jobs that need memory, devices, properties or certain nodes.

The other packages count processors. That is exact as long as all processors are equal. If they are
not (``View.amounts_left`` is not None), the functions here find the processors themselves.
"""
