"""What a run leaves on disk: its full state and history, the released form of a model, other toolkits' forms."""
