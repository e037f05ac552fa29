"""Memory: measured here, predicted and saved by what joins it."""
