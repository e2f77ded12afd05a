"""Real ONNX models that ship inside ordinary packages: which, from where, and into which half each belongs."""
