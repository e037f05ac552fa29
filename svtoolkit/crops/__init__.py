"""While crops travel: manifest, training set, sampler, crop, loader."""
