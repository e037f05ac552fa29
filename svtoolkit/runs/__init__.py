"""What a run leaves on disk: exp_dir, full state, epoch weights, history, provenance."""
