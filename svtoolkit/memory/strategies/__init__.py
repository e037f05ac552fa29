"""What becomes of a network's activations between forward and backward pass: a file each strategy."""
