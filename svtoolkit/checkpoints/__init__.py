"""Checkpoints: the full state of a run, the released form of a model, readers of other toolkits' forms."""
