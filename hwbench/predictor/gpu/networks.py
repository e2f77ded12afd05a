"""Whole networks beside the sum of their operators: how much longer they take, and how far off the sum of a new GPU is.

What a table of operators cannot show (caches that are warm or cold, clocks under lasting load, copies nobody counted) shows in
NeuSight's Transformers, which others measured end to end. Each generation left out, its networks are priced by what the others
taught; the middle of these ratios calibrates, their scatter is the interval of a network on a GPU never measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hwbench.core import conformal, schema
from hwbench.predictor.gpu import left_out as lefts
from hwbench.predictor.gpu.datasheet import FAMILIES, FORMAT, Array, Gpu, Ops, labels, sheet_of
from hwbench.predictor.gpu.model import Core, EndToEnd, layers, of_label
from hwbench.predictor.gpu.transformers import GUESSED, NETWORKS, SEEN, ops_of

LABEL = "network"


@dataclass(frozen=True)
class Measured:
    """A network that others measured end to end."""

    gpu: str
    network: str
    batch: int
    tokens: int
    fused: bool
    ms: float

    @property
    def calibrates(self) -> bool:
        """Eager ones whose sizes are published and were not chosen by their times."""
        return not self.fused and self.network not in (*GUESSED, *SEEN)

    def ops(self) -> tuple[Ops, Array]:
        """Its operators, and how often each runs."""
        return ops_of(self.network, self.batch, self.tokens, self.fused)


def read(tables: str | Path, known: Mapping[str, Gpu]) -> tuple[list[Measured], list[tuple[str, str]]]:
    """NeuSight's inference rows on GPUs with a data sheet; and (row, why) of those that are not read."""
    path = Path(tables) / "neusight" / "e2e_transformers.parquet"
    if not path.is_file():
        return [], []
    frame = schema.read_table(path).to_pandas()
    named = {alias.replace(" ", "_"): name for name, gpu in known.items() for alias in gpu.table_names}
    found, left = [], []
    for row in frame[frame["mode"] == "inf"].itertuples():
        device, network = str(row.device), str(row.model)
        if device in named and network in NETWORKS:
            fused = row.variant == "fusion"
            ms = float(row.e2e_latency_ms)
            found.append(Measured(named[device], network, int(row.batch), int(row.seq_len), fused, ms))
        else:
            why = "no device file" if device not in named else "sizes unknown"
            left.append((f"{row.name} on {device}", why))
    return found, left


def sum_ms(core: Core, belief: lefts.Belief, gpu: Gpu, ops: Ops, often: Array) -> float:
    """The sum of a network's operators by layers 1 and 2."""
    total = 0.0
    for family, kinds in FAMILIES.items():
        index = np.flatnonzero(np.isin(ops.kind, kinds))
        if len(index):
            part = ops.take(index)
            label = labels(part.kind, np.full(len(part), FORMAT))
            sheet = sheet_of(np.full(len(part), gpu.name), {gpu.name: gpu}, FORMAT, alone=False)
            log_ms, rest, _ = layers(core, family, part, label, sheet)
            total += float(often[index] @ np.exp(log_ms + (of_label(label, belief) * rest).sum(1)))
    return total


def calibrate(
    networks: Iterable[Measured],
    left_out: Sequence[lefts.LeftOut],
    belief: lefts.Belief,
    known: Mapping[str, Gpu],
    coverage: float,
) -> EndToEnd | None:
    """What the networks of every generation left out say; None where fewer than two generations have any."""
    cores = {part.name: part.core for part in left_out}
    ratios: dict[str, list[float]] = {}
    for each in networks:
        gpu = known[each.gpu]
        if each.calibrates and gpu.generation in cores:
            ms = sum_ms(cores[gpu.generation], belief, gpu, *each.ops())
            ratios.setdefault(gpu.generation, []).append(float(np.log(each.ms / ms)))
    if len(ratios) < 2:
        return None
    judged = {}
    for name, own in ratios.items():
        others = _of({other: each for other, each in ratios.items() if other != name}, coverage)
        off = np.array(own) - np.log(others.factor)
        low, high = others.band.bounds(np.ones(len(off)))
        error = {"n": len(off), "mean_abs_error": float(np.abs(np.exp(-off) - 1).mean())}
        judged[name] = {**error, "covered": conformal.covered(low, high, np.exp(off))}
    found = _of(ratios, coverage)
    return EndToEnd(found.factor, found.band, judged)


def _of(ratios: Mapping[str, Sequence[float]], coverage: float) -> EndToEnd:
    """Every generation counts alike."""
    middle = float(np.median([np.median(each) for each in ratios.values()]))
    pairs = [(name, np.array(each) - middle, np.ones(len(each))) for name, each in ratios.items()]
    return EndToEnd(float(np.exp(middle)), lefts.bands({LABEL: pairs}, coverage)[LABEL], {})
