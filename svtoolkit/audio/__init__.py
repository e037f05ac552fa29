"""Sound: decoding by slice, m4a, the reading of tar shards, local and remote, and how much of a recording is voice."""
