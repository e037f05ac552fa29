"""Writing of tar shards: few large files in place of millions of small ones, found by offset."""
