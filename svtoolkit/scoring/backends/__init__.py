"""Back ends trained on embeddings: LDA, WCCN and PLDA."""
