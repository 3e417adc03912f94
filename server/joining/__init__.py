"""How hosts join the cluster: a listener of its own, which hosts without a certificate can use."""
