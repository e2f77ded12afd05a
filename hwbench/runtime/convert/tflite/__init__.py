"""ONNX models as LiteRT's .tflite files.

It must not know where they come from or where they run.
"""
