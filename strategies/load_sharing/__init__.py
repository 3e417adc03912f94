"""Load sharing by CPU and memory, and virtual reconfiguration (Chen, Xiao and Zhang 2002).

Each pass decides by the last reports of the nodes (``View.loads``), in this order: submissions,
nodes that are short of memory, reservations. A node without a report gets new jobs, but
none is moved there, so these strategies also run where nothing measures memory. They then start
each job on the node with the fewest jobs, and move nothing.
"""
