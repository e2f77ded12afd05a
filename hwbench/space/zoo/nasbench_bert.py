"""NAS-Bench-BERT (Serianni and Kalita 2023), drawn from FlexiBERT's space: what mixes tokens is chosen per layer.

An operation is self-attention (scores by scaled dot product, or with a learned weight between query and key), a linear
transform (the real part of the Fourier transform, or the cosine transform, of every head) or ConvBERT's dynamic span
convolution (kernel 5 or 9; half of the heads attend, the other half convolve). Each has one choice of its own, which counts
in its layers alone. Then a feed-forward block of one or three hidden layers. ELECTRA's embeddings: 128 wide, projected where
the network is wider. The sequence length is part of the name: `nasbench-bert` is 128 tokens, `nasbench-bert:sequence=384` is
384.

Networks are those of the benchmark's torch code, by which its scores were computed: a transform has neither residual nor norm
(the benchmark's training code in TensorFlow gives it both). Known difference: the classifier ends in BERT's pooler (tanh)
instead of ELECTRA's (GELU). The benchmark's own column of parameters counts width 256 and FFNs of 1,024 whatever the
architecture says.
"""

from __future__ import annotations

from typing import Any

from hwbench.core.errors import UsageError
from hwbench.network.graph import Tensor, Workload
from hwbench.space.base import Gene, Space, per_layer
from hwbench.space.lowering import Lowering

LAYERS, VOCABULARY, POSITIONS, EMBEDDING = 4, 30_522, 512, 128
OPERATIONS = ("attention", "transform", "convolution")
SHARE = 2
"""Of a convolution's heads, every so many-th attends; as many convolve."""


class NasbenchBert(Space):
    """Width and depth for the network; six choices per layer, of which four count."""

    name: str

    def __init__(self, sequence: int = 128, classes: int = 2) -> None:
        if not 1 <= sequence <= POSITIONS:
            raise UsageError(f"nasbench-bert: sequence must be 1 to {POSITIONS}, got {sequence}.")
        self.sequence, self.classes = sequence, classes
        choices: dict[str, tuple[int | str, ...]] = {
            "operation": OPERATIONS,
            "score": ("dot", "weighted"),
            "transform": ("dft", "dct"),
            "kernel": (5, 9),
            "heads": (2, 4),
            "ffn_dim": (512, 1024),
            "ffn_layers": (1, 3),
        }
        self.genes = (
            Gene("hidden_size", (128, 256)),
            Gene("depth", (2, LAYERS)),
            *(gene for name, values in choices.items() for gene in per_layer(name, values, LAYERS)),
        )

    def lower(self, arch: Lowering) -> Workload:
        """Embeddings, (operation, feed-forward) x depth, pooled head; post-norm."""
        tokens, dim = self.sequence, arch["hidden_size"]
        arch.input(Tensor("input_ids", (tokens,), "int64", high=VOCABULARY))
        sizes = {"tokens": tokens, "vocabulary": VOCABULARY, "length": POSITIONS, "dim": EMBEDDING}
        x = arch.add("stem", "token_embedding", "input_ids", **sizes)
        with arch.choose("hidden_size") as width:
            if width != EMBEDDING:
                x = arch.add("projection", "linear", x, tokens=tokens, **{"in": EMBEDDING}, out=width)
        for i in arch.repeat("depth"):
            with arch.choose(("operation", i)) as operation:
                x = self._operation(arch, x, i, operation, dim)
            hidden, layers = arch["ffn_dim", i], arch["ffn_layers", i]
            x = arch.add(f"layer{i}.ffn", "stacked_ffn_block", x, tokens=tokens, dim=dim, hidden=hidden, layers=layers)
        return arch.workload(arch.add("head", "pooled_head", x, tokens=tokens, dim=dim, classes=self.classes))

    def _operation(self, arch: Lowering, x: str, i: int, operation: str, dim: Any) -> str:
        name, tokens, heads = f"layer{i}.{operation}", self.sequence, arch["heads", i]
        split: dict[str, Any] = {"tokens": tokens, "heads": heads, "head_dim": dim // heads}
        if operation == "transform":
            return arch.add(name, "spectral_block", x, **split, form=arch["transform", i])
        if operation == "convolution":
            return arch.add(name, "span_convolution_block", x, **{**split, "heads": heads // SHARE}, kernel=arch["kernel", i])
        with arch.choose(("score", i)) as score:
            if score == "weighted":
                return arch.add(name, "weighted_attention_block", x, **split, dim=dim)
            return arch.add(name, "attention_block", x, **split, dim=dim, norm="post", qkv="separate")
