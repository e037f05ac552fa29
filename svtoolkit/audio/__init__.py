"""Sound on disk: decoding by slice, m4a, and the reading of tar shards, local and remote."""
