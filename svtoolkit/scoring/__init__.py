"""Scores of trials: cosine, score normalisation, calibration and the metrics of verification."""
