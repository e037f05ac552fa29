"""What only a GPU can say, in parts that are measured each by itself: `bash benchmarks/gpu.sh`."""
