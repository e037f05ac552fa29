"""Who is told the figures of a run beside its own history: TensorBoard, CSV, Weights & Biases, MLflow."""
