"""The latency loss of ProxylessNAS and FBNet: expected latency, differentiable in the probabilities of choices.

    latency = hwbench.latency_loss(table_ms, target_ms=12.0)        a torch module, exact at one-hot
    for batch in batches:
        chances = latency.sample(logits)                            or Gumbel samples, soft or straight-through
        loss = cross_entropy(supernet(batch, chances)) + latency(chances)

Genes are drawn independently, so the expectation of a table of a compiled cost is its product with the probabilities of its
genes. The papers leave the weight of latency to hand tuning; here a controller moves it until the latency is the target.
The survey prints the sum with raw architecture parameters, which is no latency: what is no probability is refused.

Cai et al., ProxylessNAS, ICLR 2019; Wu et al., FBNet, CVPR 2019. Needs torch, which is imported when first used.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.core.command import extra, hint
from hwbench.core.errors import UsageError
from hwbench.optimize import choice_table
from hwbench.predictor.latency import ArchitectureLatency, latency
from hwbench.space.base import Space
from hwbench.space.compiled import CompiledSum

if TYPE_CHECKING:
    from hwbench.optimize.torch_modules import ExpectedCost, LatencyLoss

Tensor = Any
"""A torch.Tensor; torch is not imported here."""
SUM_TOLERANCE = 1e-2
"""How far the probabilities of a gene may be from 1 together: what a softmax in half precision needs."""
WEIGHT_RANGE = 1e6
"""The weight stays within this factor of its start, so that it comes back from targets that cannot be met."""
INTEGRAL, PROPORTIONAL = 0.05, 5.0
"""Gains of the controller."""
STEPS = 1500
LEARNING_RATE = 0.05
MAX_LOGIT = 2.5
"""Logits stay within this: a choice of a chance below 1 % is soon reconsidered."""
SHARPNESS = 1.0
"""Final charge of spread, relative to what the controller charges for missing the target: mixtures fall apart from 0.5 on."""
NEAR_TARGET = 0.05
"""Spread is charged less the further the latency is from the target, and not at all this far from it (relative). In a cell
one choice is a quarter of the latency: charged all the same, no gene could turn any more (seen: settled 8-15 % too slow)."""


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise UsageError(f"The latency loss needs torch. {hint(extra('torch'))}") from None
    return torch


def latency_loss(
    source: choice_table.Table | ArchitectureLatency | str | Space | type[Space],
    target_ms: float,
    constant_ms: float | None = None,
    device: str | None = None,
    runtime: str | None = None,
    start: float = 1.0,
    integral: float = INTEGRAL,
    proportional: float = PROPORTIONAL,
) -> LatencyLoss:
    """A torch module that is added to a task's loss, so that the expected latency of what is chosen settles at a target.

        >>> loss = hwbench.latency_loss([[1.2, 0.8, 0.1], [2.5, 1.9]], target_ms=2.2)  # ms of every choice of two blocks
        >>> loss
        LatencyLoss(2 genes, target 2.2 ms, weight 1)
        >>> logits = [torch.zeros(3, requires_grad=True), torch.zeros(2, requires_grad=True)]
        >>> (task_loss + loss(loss.sample(logits))).backward()

    Args:
        source: Milliseconds of every choice of every block: lists or arrays, or mappings in the order of your logits
            (`{"block1": {"conv3": 1.2, "conv5": 1.9}}`). Or what `hwbench.latency` gave, or a space: then logits are those of
            its genes.
        target_ms: Latency to settle at.
        constant_ms: With a table: what every network has beside its choices, such as stem and head; 0 if not given.
        device: With a space: `local` (if not given) or a device's name.
        runtime: With a space: inference runtime.
        start: First weight of the latency; any guess of the right size of the task's loss.
        integral: How fast the weight follows a lasting excess, per step.
        proportional: How strongly the present excess counts.

    Raises:
        UsageError: torch is missing, a number is none, the target is out of reach, or the latency of the space is no sum
            over its choices.
    """
    controller = WeightController(target_ms, start, integral, proportional)
    tables, constant, least_ms = _priced(source, constant_ms, {"device": device, "runtime": runtime})
    if target_ms < least_ms:
        raise UsageError(f"target_ms {target_ms:g} is out of reach: the fastest choices take {least_ms:.6g} ms.")
    _torch()
    from hwbench.optimize.torch_modules import ExpectedCost, LatencyLoss

    return LatencyLoss(ExpectedCost(tables, constant), controller)


def _priced(
    source: Any, constant_ms: float | None, where: Mapping[str, str | None]
) -> tuple[Mapping[tuple[int, ...], np.ndarray], float, float]:
    """(tables by genes, constant, the least any choices take) of a table, a model or a space."""
    named: dict[str, Any] = {name: value for name, value in where.items() if value is not None}
    if isinstance(source, str) or hasattr(source, "lower"):
        source, named = latency(source, **named), {}
    if isinstance(source, ArchitectureLatency):
        named |= {} if constant_ms is None else {"constant_ms": ""}
        if named:
            raise UsageError(f"What hwbench.latency gave has its own {next(iter(named))}: leave it out here.")
        if (compiled := source.of_space.compiled) is None:
            raise UsageError(
                f"{source.facts.name} ({source.facts.predictor}) tells latencies that are no sums over choices, so their "
                "expectation is unknown: give a table of ms per choice, or a device whose table was profiled."
            )
        return compiled.tables, compiled.constant, compiled.minimum()[0]
    if named:
        raise UsageError(f"A table of ms per choice knows no {next(iter(named))}: leave it out, or give a space.")
    blocks, constant = choice_table.blocks_of(source), choice_table.milliseconds("constant_ms", constant_ms or 0.0)
    return {(i,): block for i, block in enumerate(blocks)}, constant, constant + sum(block.min() for block in blocks)


def expected_cost(compiled: CompiledSum) -> ExpectedCost:
    """A torch module: probabilities of every gene's choices -> expected cost.

    It takes `[..., genes, width]`, width being the largest number of choices (zeros where a gene has fewer), or a sequence
    with one `[..., choices]` per gene, and returns `[...]`. It computes in the precision of what it is given, at least
    float32. Choices that the other genes switch off (layers beyond the depth) add nothing, as the tables say. `sizes` are the
    choices of each gene.

    Args:
        compiled: The cost of a space: `CompiledSum(...)`, or the `value` of a cost that adds over ops.
    """
    if not isinstance(compiled, CompiledSum):
        raise UsageError(f"expected_cost needs a cost that is compiled from sums over ops, got {type(compiled).__name__}.")
    _torch()
    from hwbench.optimize.torch_modules import ExpectedCost

    return ExpectedCost(compiled.tables, compiled.constant)


def sizes_of(tables: Mapping[tuple[int, ...], np.ndarray]) -> tuple[int, ...]:
    """Choices of every gene."""
    return tuple(tables[(gene,)].size for gene in range(1 + max(gene for genes in tables for gene in genes)))


def stacked(tables: Mapping[tuple[int, ...], np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
    """([genes of a table, tables], [tables, choices of its first gene, ...]) for every shape of tables that add anything."""
    groups: dict[tuple[int, ...], list[tuple[tuple[int, ...], np.ndarray]]] = {}
    for genes, table in tables.items():
        if table.any():
            groups.setdefault(table.shape, []).append((genes, table))
    return [
        (np.ascontiguousarray(np.array([genes for genes, _ in members]).T), np.stack([table for _, table in members]))
        for members in groups.values()
    ]


def expectation(chances: Tensor, genes: Tensor, tables: Tensor) -> Tensor:
    """The expected sum of stacked tables, given the probabilities of every gene's choices."""
    torch = _torch()
    value, axes = tables.to(chances.dtype), string.ascii_lowercase[: tables.ndim - 1]
    # One gene after the other: einsum thinks long about more than two tensors.
    for j, size in enumerate(tables.shape[1:]):
        part = chances.index_select(-2, genes[j])[..., :size]
        left = f"Z{axes[j + 1 :]}" if j + 1 < len(axes) else ""
        value = torch.einsum(f"...Z{axes[j:]},...Z{axes[j]}->...{left}", value, part)
    return value


def probabilities(given: Tensor | Sequence[Tensor], sizes: Sequence[int], real: Tensor) -> Tensor:
    """What was given as one tensor, at least float32; refused unless every gene's numbers are probabilities."""
    torch = _torch()
    chances, width = _padded(given, 0.0), max(sizes)
    if chances.ndim < 2 or chances.shape[-2] != len(sizes) or chances.shape[-1] < width:
        raise UsageError(_shape_error("Probabilities", sizes, chances))
    chances = chances[..., :width].to(torch.promote_types(chances.dtype, torch.float32))
    with torch.no_grad():
        right = ((chances * real).sum(-1) - 1).abs() <= SUM_TOLERANCE
        right &= (chances >= -SUM_TOLERANCE).all(-1)
        if not right.all():
            gene = int((~right).nonzero()[0, -1])
            raise UsageError(
                f"Gene {gene}: its {sizes[gene]} numbers are no probabilities; give the softmax of the logits "
                "(sample_choices), not the logits."
            )
    return chances


def sample_choices(
    logits: Tensor | Sequence[Tensor],
    sizes: Sequence[int] | None = None,
    temperature: float = 1.0,
    hard: bool = False,
    generator: Any = None,
) -> Tensor:
    """Probabilities of choices `[..., genes, width]` from logits; gradients flow back to the logits.

    Without a generator nothing is drawn: the softmax (ProxylessNAS' expectation). With one it is a Gumbel-softmax sample
    (FBNet). `hard` makes either one-hot and passes the gradient of the soft one on (straight-through; GDAS).

    Args:
        logits: `[..., genes, width]`, or a sequence with one `[..., choices]` per gene.
        sizes: Choices of each gene, where logits are padded: what lies beyond is never chosen.
        temperature: Below 1 choices are more decided, above 1 less.
        hard: One choice per gene.
        generator: torch.Generator that draws.
    """
    if not 0 < temperature < math.inf:
        raise UsageError(f"The temperature must be a positive number, got {temperature:g}; 1 is the plain softmax.")
    torch = _torch()
    scores = _padded(logits, -math.inf)
    if sizes is not None:
        if scores.ndim < 2 or scores.shape[-2] != len(sizes) or scores.shape[-1] < max(sizes):
            raise UsageError(_shape_error("Logits", sizes, scores))
        scores = scores.masked_fill(~real_choices(sizes, scores.shape[-1]).to(scores.device), -math.inf)
    if generator is not None:
        waits = torch.empty(scores.shape, dtype=scores.dtype, device=scores.device).exponential_(generator=generator)
        scores = scores - waits.clamp_min(torch.finfo(scores.dtype).tiny).log()  # minus the log of a wait is a Gumbel draw
    soft = torch.softmax(scores / temperature, dim=-1)
    if not hard:
        return soft
    one = torch.zeros_like(soft).scatter_(-1, soft.argmax(dim=-1, keepdim=True), 1.0)
    return one + (soft - soft.detach())  # the bracket is exactly 0: the value is exactly one-hot


def most_likely(chances: Tensor) -> np.ndarray:
    """The architecture of the likeliest choices: uint8[n, genes] of `[n, genes, choices]`, one row without a batch."""
    genes = chances.detach().argmax(dim=-1).cpu().numpy().astype(np.uint8)
    return np.asarray(genes.reshape(-1, genes.shape[-1]))


class WeightController:
    """Finds the weight in `task_loss + weight * latency / target` with which the latency settles at the target.

    A multiplicative PI rule on the relative excess e = latency / target - 1, clipped to -1 .. 1:

        base   <- base * exp(integral * e)
        weight  = max(0, base * (1 + proportional * e))

    The base is the dual variable of "latency <= target": it grows while the latency is above the target and shrinks while
    it is below, by factors, so that it finds its size whatever the unit of the task's loss. The proportional part acts at
    once and fades as the target is met; without it base and latency would swing around each other for ever (a Lagrangian
    that is linear in the choices has no pull of its own). Where even a weight of 0 leaves the latency below the target, the
    weight ends there.
    """

    def __init__(
        self, target: float, start: float = 1.0, integral: float = INTEGRAL, proportional: float = PROPORTIONAL
    ) -> None:
        """Starts.

        Args:
            target: Latency to settle at, in the unit of what `update` gets.
            start: First weight; any guess of the right size of the task's loss.
            integral: How fast the weight follows a lasting excess, per step.
            proportional: How strongly the present excess counts.
        """
        if not 0 < target < math.inf:
            raise UsageError(f"A target latency must be a positive number, got {target:g}.")
        if not 0 < start < math.inf:
            raise UsageError(
                f"The weight of latency must start above 0, got {start:g}: a negative one would reward slower networks."
            )
        if not (0 < integral < math.inf and 0 <= proportional < math.inf):
            raise UsageError(
                f"Gains must be positive, got integral {integral:g} and proportional {proportional:g}: "
                "negative ones would drive the latency away from the target."
            )
        self.target, self.integral, self.proportional = float(target), integral, proportional
        self.weight = self._base = float(start)
        self._least, self._most = start / WEIGHT_RANGE, start * WEIGHT_RANGE

    def __repr__(self) -> str:
        return f"WeightController(target {self.target:g}, weight {self.weight:.4g})"

    def state(self) -> dict[str, float]:
        """What another one goes on from."""
        return {"weight": self.weight, "base": self._base}

    def restore(self, state: Mapping[str, float]) -> None:
        """Goes on from there."""
        self.weight, self._base = state["weight"], state["base"]

    def update(self, latency: float) -> float:
        """The weight to use now, given the expected latency of this step."""
        if not math.isfinite(latency):
            raise UsageError(f"The latency given to the controller must be a number, got {latency}; the logits have diverged.")
        excess = min(max(latency / self.target - 1.0, -1.0), 1.0)
        self._base = min(max(self._base * math.exp(self.integral * excess), self._least), self._most)
        self.weight = max(0.0, self._base * (1.0 + self.proportional * excess))
        return self.weight


def descend(
    task: Callable[[Tensor], Tensor],
    cost: Any,
    targets: Sequence[float],
    steps: int = STEPS,
    seed: int = 0,
    watch: Callable[[int, Tensor], None] | None = None,
) -> Tensor:
    """Descends the logits of all genes on `task + weight * latency / target`, for several targets side by side.

    For task losses that are functions of the chances alone (an expected proxy, a learnt surrogate); who trains a supernet
    writes the same loop around it. A mixture can meet the target on average while none of its members is near it, so in
    the second quarter of the steps each choice is charged, besides its latency, more and more for how far it takes the
    latency from the mean (the gradient of the variance of drawn latencies): mixtures fall apart, small genes make up for
    the large ones, and the likeliest architecture meets the target too. Where all genes are large (a cell), a mixture that
    meets the target remains: draw from it (`sample_choices`, hard). The last third cools down. Runs on one thread: the
    tensors are small, and threads that wait for each other cost more than they bring.

    Args:
        task: Chances [targets, genes, choices] -> the loss without latency, [targets].
        cost: An `expected_cost`.
        targets: Latencies to settle at.
        steps: Of descent.
        seed: Draws the first logits, nearly uniform.
        watch: Called with every step and its chances.

    Returns:
        The chances the logits end at, [targets, genes, choices].
    """
    if steps < 3:
        raise UsageError(f"steps must be at least 3, got {steps}.")
    for target in targets:
        WeightController(target)  # refuses it before anything is computed
    torch = _torch()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _descend(task, cost, targets, steps, seed, watch)
    finally:
        torch.set_num_threads(threads)


def _descend(
    task: Callable[[Tensor], Tensor],
    cost: Any,
    targets: Sequence[float],
    steps: int,
    seed: int,
    watch: Callable[[int, Tensor], None] | None,
) -> Tensor:
    torch = _torch()
    controllers: list[WeightController] = []
    draw = torch.Generator().manual_seed(seed)
    logits = 0.1 * torch.randn(len(targets), len(cost.sizes), max(cost.sizes), generator=draw, dtype=torch.float64)
    goal = torch.as_tensor(list(targets), dtype=torch.float64)[:, None, None]
    mean, square = torch.zeros_like(logits), torch.zeros_like(logits)
    for step in range(steps):
        logits.requires_grad_(True)
        chances = sample_choices(logits, cost.sizes)
        latency = cost(chances)
        (added,) = torch.autograd.grad(latency.sum(), chances)
        added = added / goal
        if not controllers:
            starts = _balance(task(chances), (chances * added).sum((1, 2)), logits)
            controllers = [WeightController(target, start) for target, start in zip(targets, starts, strict=True)]
        weight = torch.as_tensor([c.update(ms) for c, ms in zip(controllers, latency.tolist(), strict=True)])[:, None, None]
        apart = (added - (chances.detach() * added).sum(-1, keepdim=True)) ** 2
        sharp = SHARPNESS * controllers[0].proportional * min(max(4 * step / steps - 1, 0.0), 1.0)
        sharp = sharp * (1 - (latency.detach()[:, None, None] / goal - 1).abs() / NEAR_TARGET).clamp_min(0.0)
        loss = task(chances).sum() + (weight * chances * (added + sharp * apart)).sum()
        (pull,) = torch.autograd.grad(loss, logits)
        # Adam's step (its class takes 1.5 s to import). Squares are forgotten soon: the gradient of a decided gene is
        # small, and the gene must still be able to turn.
        mean = 0.5 * mean + 0.5 * pull
        square = 0.9 * square + 0.1 * pull**2
        rate = LEARNING_RATE * min(1.0, 3 * (1 - step / steps))
        logits = (logits.detach() - rate * mean / (square.sqrt() + 1e-12)).clamp(-MAX_LOGIT, MAX_LOGIT)
        if watch is not None:
            watch(step, chances.detach())
    return sample_choices(logits, cost.sizes)


def _balance(task: Tensor, cost: Tensor, logits: Tensor) -> list[float]:
    """The weight at which task and latency pull equally hard, per target."""
    torch = _torch()
    pulls = [torch.autograd.grad(each.sum(), logits, retain_graph=True)[0].flatten(1).norm(dim=1) for each in (task, cost)]
    weight = pulls[0] / pulls[1]
    return torch.where((weight > 0) & (weight < math.inf), weight, torch.ones_like(weight)).tolist()  # type: ignore[no-any-return]


def _shape_error(what: str, sizes: Sequence[int], given: Tensor) -> str:
    return f"{what} are needed of {len(sizes)} genes with up to {max(sizes)} choices, got the shape {list(given.shape)}."


def real_choices(sizes: Sequence[int], width: int) -> Tensor:
    """bool[genes, width]: which choices exist."""
    torch = _torch()
    return torch.arange(width) < torch.as_tensor(list(sizes))[:, None]


def _padded(parts: Tensor | Sequence[Tensor], fill: float) -> Tensor:
    """One tensor [..., genes, width] of one [..., choices] per gene; a tensor as it is."""
    torch = _torch()
    if not isinstance(parts, list | tuple | torch.nn.ParameterList):
        return torch.as_tensor(parts)
    width = max(part.shape[-1] for part in parts)
    return torch.stack([torch.nn.functional.pad(part, (0, width - part.shape[-1]), value=fill) for part in parts], dim=-2)
