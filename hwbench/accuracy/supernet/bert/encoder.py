"""The encoder as one maximal set of weights, and the one subnet of it that is active.

    net = ElasticEncoder.pretrained(folder, classes)
    net.activate(Widths(heads=(12, 8, 6), hidden=(1536, 960, 480)))     # costs no copy; a smaller depth leaves layers out
    logits = net(input_ids, attention_mask)
    net.plain()                                                         # the subnet alone, with weights of its own

Of every layer the first heads (whole rows of query, key and value, columns of the projection) and the first hidden channels are
active, so the order of both is what is shared (reorder.py). There is no dropout: subnets and distillation regularise.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from hwbench.accuracy.supernet.bert.folder import EncoderConfig, read_config, read_weights
from hwbench.accuracy.supernet.bert.sentences import Encoded
from hwbench.accuracy.supernet.linear import ElasticLinear
from hwbench.accuracy.supernet.slices import Tensor, first
from hwbench.core.errors import UsageError
from hwbench.space.encoder import Widths

FRESH_SPREAD = 0.02
"""Standard deviation of weights that no folder brings, as BERT draws them."""
JUDGED = 128
"""Sentences judged at a time."""


class ElasticLayer(nn.Module):
    """Attention and feed-forward block, post-norm."""

    def __init__(self, config: EncoderConfig, heads: int, hidden: int) -> None:
        super().__init__()
        dim, inner = config.dim, heads * config.head_dim
        self.head_dim, self.activation = config.head_dim, config.activation
        self.query, self.key, self.value = (ElasticLinear((inner, dim)) for _ in range(3))
        self.projection = ElasticLinear((dim, inner))
        self.attention_norm = nn.LayerNorm(dim, config.epsilon)
        self.up, self.down = ElasticLinear((hidden, dim)), ElasticLinear((dim, hidden))
        self.norm = nn.LayerNorm(dim, config.epsilon)

    def forward(self, x: Tensor, seen: Tensor, heads: int, hidden: int, queries: int | None = None) -> Tensor:
        """(batch, length, dim) -> the same, or its first `queries` tokens only; `seen` says which tokens are looked at."""
        given, x = x, x[:, :queries]
        asked = ((self.query, x), (self.key, given), (self.value, given))
        projected = (part(tokens, heads * self.head_dim) for part, tokens in asked)
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in projected)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).flatten(2)
        x = self.attention_norm(x + self.projection(mixed, x.shape[-1]))
        inner = getattr(F, self.activation)(self.up(x, hidden))
        return self.norm(x + self.down(inner, x.shape[-1]))


class ElasticEncoder(nn.Module):
    """Embeddings, layers, pooler and classifier; runs the widths that were activated last."""

    def __init__(self, config: EncoderConfig, classes: int, largest: Widths | None = None) -> None:
        """Takes the largest widths it must hold: those of the configuration if none are given. They are active."""
        super().__init__()
        self.config, self.classes = config, classes
        self.largest = self.widths = largest or config.widths
        self.word, self.position = nn.Embedding(config.vocabulary, config.dim), nn.Embedding(config.positions, config.dim)
        self.norm = nn.LayerNorm(config.dim, config.epsilon)
        sizes = zip(self.largest.heads, self.largest.hidden, strict=True)
        self.layers = nn.ModuleList(ElasticLayer(config, heads, hidden) for heads, hidden in sizes)
        self.pooler, self.classifier = nn.Linear(config.dim, config.dim), nn.Linear(config.dim, classes)

    @classmethod
    def pretrained(cls, folder: str | Path, classes: Sequence[str], seed: int = 0) -> ElasticEncoder:
        """The encoder of a folder. Its classifier is taken over where it tells the same classes; what is missing is drawn."""
        config = read_config(folder)
        stored = read_weights(folder, config)
        net = cls(config, len(classes))
        order = _order(config.labels, classes)
        heads = {"pooler": stored.pooler, "classifier": None if order is None else stored.classifier}
        with torch.no_grad():
            for name, value in stored.weights.items():
                _take(net, name, value, folder)
            generator = torch.Generator().manual_seed(seed)
            for name, given in heads.items():
                for part in ("weight", "bias"):
                    if given is not None:
                        _take(net, f"{name}.{part}", given[part] if name == "pooler" else given[part][order], folder)
                    elif part == "bias":
                        nn.init.zeros_(net.get_parameter(f"{name}.bias"))
                    else:
                        nn.init.normal_(net.get_parameter(f"{name}.weight"), std=FRESH_SPREAD, generator=generator)
        return net

    def activate(self, widths: Widths) -> None:
        """Makes this the subnet that runs.

        Raises:
            UsageError: it does not fit into the weights.
        """
        pairs = [*zip(widths.heads, self.largest.heads, strict=False), *zip(widths.hidden, self.largest.hidden, strict=False)]
        fits = len(widths.heads) == len(widths.hidden) and 1 <= widths.depth <= self.largest.depth
        if not fits or any(not 1 <= wanted <= held for wanted, held in pairs):
            raise UsageError(f"{widths} does not fit into {self.largest}.")
        self.widths = widths

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """(batch, length) twice -> logits (batch, classes)."""
        x = self.norm(self.word(input_ids) + self.position.weight[: input_ids.shape[1]])
        seen = attention_mask.bool()[:, None, None]
        for i, (heads, hidden) in enumerate(zip(self.widths.heads, self.widths.hidden, strict=True), 1):
            # Of the last layer only the first token is read: a seventh of the work of six layers is saved.
            x = self.layers[i - 1](x, seen, heads, hidden, queries=1 if i == self.widths.depth else None)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def plain(self) -> ElasticEncoder:
        """The active subnet alone: a network of exactly its size, with copies of its weights."""
        alone = ElasticEncoder(self.config, self.classes, self.widths)
        for name, parameter in alone.named_parameters():
            parameter.copy_(first(self.get_parameter(name), parameter.shape))
        return alone

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def weights(self) -> dict[str, np.ndarray]:
        """All weights by name, as arrays: of `plain()`, those of one subnet."""
        return {name: parameter.numpy().copy() for name, parameter in self.named_parameters()}


def _order(theirs: Sequence[str], classes: Sequence[str]) -> list[int] | None:
    """Where a folder's classifier tells each class; None where it tells others.

    Names that nobody gave (LABEL_0, LABEL_1) stand for the classes 0, 1, ...
    """
    unnamed = [f"LABEL_{i}" for i in range(len(theirs))]
    names = [str(i) for i in range(len(theirs))] if list(theirs) == unnamed else list(theirs)
    return [names.index(label) for label in classes] if sorted(names) == sorted(classes) else None


def _take(net: nn.Module, name: str, value: Tensor, folder: str | Path) -> None:
    held = net.get_parameter(name)
    if held.shape != value.shape:
        raise UsageError(f"{folder}: {name} is {tuple(value.shape)}, its configuration says {tuple(held.shape)}.")
    held.copy_(value)


@torch.no_grad()  # type: ignore[untyped-decorator]
def logits_of(net: ElasticEncoder, data: Encoded) -> np.ndarray:
    """Logits of every sentence by the active subnet, in the order of the data."""
    found = np.empty((len(data), net.classes), np.float32)
    for batch in data.in_order(JUDGED):
        found[batch.rows] = net(torch.from_numpy(batch.ids), torch.from_numpy(batch.mask)).numpy()
    return found


def accuracy_of(logits: np.ndarray, data: Encoded) -> float:
    """Percent of the sentences whose class is told."""
    return 100 * float((logits.argmax(1) == data.labels).mean())
