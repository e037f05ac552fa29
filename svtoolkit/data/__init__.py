"""Kaldi data directories off line: read, write, validate, repair, convert, split, trials, shards."""
