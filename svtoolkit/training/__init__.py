"""The training loop, its state, and what it tells while it runs."""
