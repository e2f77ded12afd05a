"""Numbers not taken: what an op, a network, an ONNX model or a GPU operator will cost, with its interval and its card.

It must not know searches.
"""

KINDS = {"aggregator": "hwbench.predictor.aggregator", "regressor": "hwbench.predictor.regressor"}
