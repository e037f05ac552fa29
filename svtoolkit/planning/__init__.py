"""What a run will need: its parts assembled, its memory predicted, the networks surveyed."""
