"""What is run: operators, their shapes and work, networks as graphs of them, and their ONNX form.

It must not know devices, latencies or genes.
"""

KINDS = {"op": "hwbench.network.op"}
