"""An elastic classifier: `classifier_head` of any width up to the maximal one."""

from __future__ import annotations

from torch import nn

from hwbench.accuracy.supernet.linear import ElasticLinear
from hwbench.accuracy.supernet.norm import ElasticNorm
from hwbench.accuracy.supernet.slices import Shape, Tensor
from hwbench.network.spec import OpSpec


class ElasticClassifierHead(nn.Module):
    """Layer norm of the first token (it does not look at the others), linear layer to the classes."""

    def __init__(self, shapes: dict[str, Shape]) -> None:
        """Takes the maximal shape of every parameter."""
        super().__init__()
        self.norm, self.classifier = ElasticNorm(shapes["norm.weight"]), ElasticLinear(shapes["classifier.weight"])

    def forward(self, spec: OpSpec, x: Tensor) -> Tensor:
        """(batch, tokens, dim) -> (batch, classes)."""
        return self.classifier(self.norm(x[:, 0]), spec["classes"])
