"""What becomes of every block of a network, so that a step takes the least time in so much memory, or the other way round."""
