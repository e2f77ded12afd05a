"""Where the time of a search's winner goes: by kind of block and by part of the network, in the report of the search.

Prices are those of blocks alone: what the lookup table holds, or what the predictor says of blocks that have no row. What the
predicted latency of the whole network has beside them is a row of its own, so that every split adds up to the prediction.
Milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hwbench.lut import table as luts
from hwbench.lut.table import Lut
from hwbench.network.graph import Phase, Workload
from hwbench.network.op.base import single
from hwbench.network.spec import OpSpec
from hwbench.predictor.base import LatencyModel, Refusal
from hwbench.predictor.model_latency import CALIBRATION, MEASURED, MODELLED, Layer
from hwbench.predictor.models import Chosen
from hwbench.predictor.space_latency import Fitted
from hwbench.space import lowering
from hwbench.space.architectures import Architectures
from hwbench.study import charts
from hwbench.study.render import Block, Panel, Section, ms, percent
from hwbench.study.time_split import Part, by_group, by_type

TITLE = "Where the winner's time goes"
Prices = Mapping[OpSpec, tuple[float, str]]
"""Op -> ms of one run, and how that is known."""


def section(chosen: Chosen, networks: Architectures, statistic: str, predicted_ms: float, again: str = "") -> Section:
    """The section of the first of some networks; where its predictor tells whole networks only, a sentence that says so."""
    workload = lowering.lower(networks.space, networks.population[:, 0])
    prices = prices_of(chosen.model, list(workload.counts()), statistic)
    if isinstance(prices, Refusal):
        why = f"The latency cannot be split up: its predictor, {chosen.latency.facts.name}, tells whole networks only."
        return TITLE, [Block("text", why)]
    layers = layers_of(workload, prices)
    calibration_ms = predicted_ms - sum(layer.latency_ms for layer in layers)
    if abs(calibration_ms) <= 1e-9 * predicted_ms:  # what rounding leaves is no calibration
        calibration_ms = 0.0
    kinds, parts = by_type(layers), by_group(layers, [_part_of(layer.name) for layer in layers])
    names = [part.name for part in kinds]
    panels = [
        Panel("time-by-kind", charts.shares(_with({k.name: {k.name: k.latency_ms} for k in kinds}, calibration_ms),
                                             [*names, CALIBRATION], predicted_ms, "By kind of block")),
        Panel("time-by-part", charts.shares({part.name: part.types for part in parts}, names, predicted_ms,
                                             "By part of the network, in running order")),
    ]  # fmt: skip
    return TITLE, [
        Block("text", _words(kinds, parts, predicted_ms)),
        Block("picture", _caption(calibration_ms), panels=panels),
        _table(kinds, calibration_ms, predicted_ms, again),
    ]


def layers_of(workload: Workload, prices: Prices) -> list[Layer]:
    """Every block of a workload with its price, all runs together, in running order."""
    found = []
    for i, phase in enumerate(workload.phases, start=1):
        prefix = f"phase {i} " if len(workload.phases) > 1 else ""
        for node in phase.network.nodes:
            alone_ms, price = prices[node.spec]
            kind = node.spec.op.replace("_", " ")
            latency_ms = phase.repeat * alone_ms
            found.append(Layer(prefix + node.name, kind, node.spec.key, latency_ms, price, 0.0, phase.repeat))
    return found


def prices_of(model: LatencyModel, specs: Sequence[OpSpec], statistic: str) -> Prices | Refusal:
    """What each op takes alone: by its row in the table a sum was fitted on, else by asking for a network of that op only."""
    if not isinstance(model, Fitted):
        told = model.predict_networks([Workload((Phase(single(spec)),)) for spec in specs], statistic)
        if isinstance(told, Refusal):
            return told
        return {spec: (float(value), MODELLED) for spec, value in zip(specs, told.value_ms, strict=True)}
    rows_ms = Lut.read(luts.find_lut(model.target)).values(model.target.setting)
    modelled = model.predictors[statistic].op_ms(specs)
    return {
        spec: (rows_ms[spec.key], MEASURED) if spec.key in rows_ms else (float(each), MODELLED)
        for spec, each in zip(specs, np.asarray(modelled, float), strict=True)
    }


def _part_of(name: str) -> str:
    """`layer3` of `layer3.attention`."""
    return name.partition(".")[0]


def _with(rows: Mapping[str, Mapping[str, float]], calibration_ms: float) -> dict[str, Mapping[str, float]]:
    return {**rows, CALIBRATION: {CALIBRATION: calibration_ms}} if calibration_ms else dict(rows)


def _words(kinds: Sequence[Part], parts: Sequence[Part], predicted_ms: float) -> str:
    slowest = max(parts, key=lambda part: part.latency_ms)
    first = f"{kinds[0].name} takes {percent(kinds[0].latency_ms / predicted_ms, '.1f')} %, in {kinds[0].runs} runs"
    return (
        f"Of the predicted {ms(predicted_ms)} ms, {first}. The slowest of {len(parts)} parts, {slowest.name}, takes "
        f"{ms(slowest.latency_ms)} ms ({percent(slowest.latency_ms / predicted_ms, '.1f')} %)."
    )


def _caption(calibration_ms: float) -> str:
    if not calibration_ms:
        return "What the predictor says of each block alone; their sum is its prediction of the network."
    more = "takes longer than" if calibration_ms > 0 else "is faster than"
    return (
        f"What blocks take alone, by the table or the predictor; the whole network {more} their sum by "
        f"{ms(abs(calibration_ms))} ms, for caches, memory and calls: that is the calibration, learnt from whole networks."
    )


def _table(kinds: Sequence[Part], calibration_ms: float, predicted_ms: float, again: str) -> Block:
    rows = [
        (part.name, str(part.runs), ms(part.latency_ms), percent(part.latency_ms / predicted_ms, ".1f"),
         percent(part.measured_ms / part.latency_ms, ".0f"))
        for part in kinds
    ]  # fmt: skip
    if calibration_ms:
        rows.append((CALIBRATION, "", ms(calibration_ms), percent(calibration_ms / predicted_ms, ".1f"), ""))
    rows += [
        ("predicted latency", str(sum(part.runs for part in kinds)), ms(predicted_ms), percent(1.0, ".1f"), ""),
    ]
    caption = "The same as numbers; they add up to the prediction. Measured: what of it rests on rows of the lookup table."
    return Block("table", caption, ("block", "runs", "time [ms]", "share [%]", "measured [%]"), rows, command=again)
