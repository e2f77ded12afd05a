"""What the host makes of an ONNX model before a runtime loads it: int8, fp16, other file formats.

It must not know ops, devices or tables.
"""
