"""One file per command: configuration in, library calls, artefacts out."""
