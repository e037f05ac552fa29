"""Before a run: one adaptor a corpus, from its layout on disk to a Kaldi data directory."""
