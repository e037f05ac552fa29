"""Exported models without torch: features by numpy, the graph by onnxruntime or OpenVINO, decisions as elsewhere."""
