"""Embeddings of utterances and scores of trials: cosine, normalisation, calibration and the metrics of verification."""
