"""Released models: ours and those of other toolkits, in and out; nothing in one is ever executed."""
