"""Quality measures: what a recording says of how far its scores can be relied on; one file a measure."""
