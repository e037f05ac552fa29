"""Known speakers: their embeddings in one SQLite file, and who of them is heard."""
