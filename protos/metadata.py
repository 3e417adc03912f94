"""What goes along with a stream before its first message."""

#: The secret of the cluster, which a node controller must know to register.
NODE_SECRET = "pliant-node-secret"
