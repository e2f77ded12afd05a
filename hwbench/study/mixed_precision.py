"""Which blocks of an encoder are computed in int8: a number format per block, by what each costs in accuracy and saves in time.

    sensitivity     dev accuracy and loss with one block at a time in int8, the rest in fp32
    choice          an integer program: the fastest formats whose sensitivities add up to no more than is allowed (or the other
                    way round), latencies being the sums of the blocks' rows in either format

Both sums are approximations, so what was chosen is written as a model, judged and measured like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.accuracy.supernet.bert.sentences import Encoded
from hwbench.core.factors import Factor
from hwbench.core.files import atomic_write, scratch_folder
from hwbench.lut.table import Lut
from hwbench.optimize import space_problem
from hwbench.optimize.problem import MIN
from hwbench.optimize.strategy.exact import Exact
from hwbench.runtime.convert import quantize
from hwbench.space.compiled import CompiledSum
from hwbench.space.encoder import PRECISIONS, EncoderSizes, EncoderSpace, Widths
from hwbench.study import cut_subnets
from hwbench.study.encoder_costs import Pricing

if TYPE_CHECKING:
    from hwbench.accuracy.supernet.bert.encoder import ElasticEncoder

FORMATS = ("fp32", "int8")
KINDS = dict(zip(PRECISIONS, ("attention", "ffn"), strict=True))
"""Gene -> what the blocks are called that it is about."""
LATENCY, LOSS = "latency_ms", "loss"


@dataclass(frozen=True)
class Judged:
    """A model on dev sentences."""

    accuracy: float
    loss: float
    """Mean cross-entropy: it tells apart what a thousand sentences' accuracy does not."""


def judged(path: Path, data: Encoded) -> Judged:
    """By its own answers."""
    logits = cut_subnets.logits(path, data).astype(np.float64)
    rows = np.arange(len(data))
    logs = logits - logits.max(1, keepdims=True)
    loss = np.log(np.exp(logs).sum(1)) - logs[rows, data.labels]
    return Judged(100 * float((logits.argmax(1) == data.labels).mean()), float(loss.mean()))


def mixed_space(sizes: EncoderSizes, widths: Widths) -> EncoderSpace:
    """One subnet, the formats of whose blocks are chosen."""
    return EncoderSpace(sizes, [[n] for n in widths.heads], [[n] for n in widths.hidden], precisions=FORMATS)


def in_int8(space: EncoderSpace, column: np.ndarray) -> list[str]:
    """The blocks that an architecture has in int8."""
    chosen = zip(space.genes, column, strict=True)
    return [f"layer{g.layer}.{KINDS[g.name]}" for g, at in chosen if g.name in KINDS and g.choices[int(at)] == "int8"]


def write(fp32: Path, blocks: Mapping[str, Sequence[str]], quantised: Sequence[str], target: Path, train: Encoded) -> None:
    """Writes the model with some blocks in int8 (node names of each block: `nodes_by_block`)."""
    import onnx

    from hwbench.accuracy.supernet.bert.onnx_model import masked_nodes

    if not quantised:
        atomic_write(target, fp32.read_bytes())
        return
    wanted = {name for block in quantised for name in blocks[block]} - set(masked_nodes(fp32))
    keep = [node.name for node in onnx.load(fp32, load_external_data=False).graph.node if node.name not in wanted]
    quantize.convert(fp32, "int8", target, cut_subnets.calibration(train), keep=keep)


def sensitivities(fp32: Path, blocks: Mapping[str, Sequence[str]], data: Mapping[str, Encoded]) -> dict[str, Judged]:
    """Each block in int8 alone, judged on dev; under the name `fp32`, none."""
    found = {"fp32": judged(fp32, data["dev"])}
    with scratch_folder() as folder:
        for block in blocks:
            write(fp32, blocks, [block], folder / "one.onnx", data["train"])
            found[block] = judged(folder / "one.onnx", data["dev"])
    return found


def choose(
    space: EncoderSpace,
    latency: CompiledSum,
    losses: Mapping[str, float],
    least: str,
    at_most: float,
) -> tuple[np.ndarray | None, float]:
    """The proven best formats by sums over blocks.

    Args:
        space: A subnet, the formats of whose blocks are chosen.
        latency: Of its architectures.
        losses: Block -> what int8 costs there.
        least: What is to be as small as can be: `latency_ms`, or `loss`.
        at_most: The most that the other may be.

    Returns:
        The architecture, None where nothing keeps the limit, and what it has of `least`.
    """
    tables: list[Factor] = [
        ((i,), np.array([losses[f"layer{gene.layer}.{KINDS[gene.name]}"] if form == "int8" else 0.0 for form in FORMATS]))
        for i, gene in enumerate(space.genes)
        if gene.name in KINDS
    ]
    sums = {LATENCY: space_problem.factors(1.0, latency), LOSS: tables}
    (other,) = set(sums) - {least}
    asked = space_problem.problem(space, {least: MIN}, {other: at_most}, additive=sums)
    exact = Exact(asked, np.random.default_rng(0))
    found = exact.ask(1)
    if exact.proof is None or exact.proof.value is None:
        return None, float("nan")
    return found[0], exact.proof.value


@dataclass(frozen=True)
class Mixing:
    """How a third form of every exported network is made."""

    points: float
    """Of dev accuracy, the most that its blocks may lose by their sensitivities."""
    sizes: EncoderSizes
    pricing: Pricing

    def write(self, net: ElasticEncoder, fp32: Path, target: Path, data: Mapping[str, Encoded]) -> dict[str, Any]:
        """Writes the fastest mixture; returns its formats, and what they rest on.

        Where int8 is nowhere faster, or costs too much everywhere, it is the fp32 file.
        """
        from hwbench.accuracy.supernet.bert.onnx_model import nodes_by_block

        space, blocks = mixed_space(self.sizes, net.widths), nodes_by_block(net)
        self.pricing.profile(space)
        found = sensitivities(fp32, blocks, data)
        losses = {block: max(0.0, found["fp32"].accuracy - found[block].accuracy) for block in blocks}
        column, latency_ms = choose(space, row_sum(space, self.pricing), losses, LATENCY, self.points)
        quantised = [] if column is None else in_int8(space, column)
        write(fp32, blocks, quantised, target, data["train"])
        return {"int8": quantised, "rows_ms": latency_ms, "sensitivity": {block: asdict(each) for block, each in found.items()}}


def row_sum(space: EncoderSpace, pricing: Pricing) -> CompiledSum:
    """The plain sum of the rows of a network's blocks, each in its own format."""
    table = Lut.of(pricing.target, [space.name])
    return CompiledSum(space, lambda specs: table.column(specs, pricing.target, spaces=[space.name]))
