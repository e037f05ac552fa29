"""From a checkpoint to a file that runs without torch: graph, precision, metadata, and the comparison with torch."""
