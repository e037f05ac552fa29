"""One adaptor a corpus: its layout on disk in, a Kaldi data directory out."""
