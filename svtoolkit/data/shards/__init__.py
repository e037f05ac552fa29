"""Audio in tar shards: few large files in place of millions of small ones, each utterance found by offset and size."""
