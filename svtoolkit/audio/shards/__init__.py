"""Reading of tar shards: each utterance is found by offset and size, in a local file or behind a URL."""
