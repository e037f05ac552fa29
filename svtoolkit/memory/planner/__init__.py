"""What is best kept of every block of a network: least time in so much memory, or least memory in so much time."""
