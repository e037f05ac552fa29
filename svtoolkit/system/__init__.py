"""Atomic files, locks, processes, threads, signals, output: knows nothing of speech."""
