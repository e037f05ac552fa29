"""Corpora as Kaldi data directories, audio by slice, sampling and augmentation."""
