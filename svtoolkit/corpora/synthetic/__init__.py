"""A corpus that needs no download: sentences, synthesised speech and simulated channels."""
