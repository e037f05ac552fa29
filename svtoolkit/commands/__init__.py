"""One file a command: configuration in, library calls, artefacts out."""
