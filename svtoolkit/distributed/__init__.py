"""Several devices: ranks, replicas, and heads whose classes lie on all of them."""
