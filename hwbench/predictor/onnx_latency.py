"""The latency of any ONNX model: taken apart into the runtime's kernels, each priced, summed and calibrated.

predictors/<device>/onnx-<runtime>-<setting>/card.json, arrays.npz

hwbench profile --kernels 1440                   measures the kernels models are made of (hwbench.profiler.kernel_grid)
hwbench fit --kernels --space bert --space nasvit    a model of their latencies, calibrated on whole networks
hwbench predict MODEL.onnx                       total, interval, coverage, layer by layer

A kernel with a row in the table costs what was measured; others are priced by an `OpModel` of all rows. Alone, a kernel
finds everything in the cache; in a network weights come from memory (where they are more than the last cache holds: no
kernel is faster than its weights can be read, a speed that single-row products with huge weights tell) and activations
from wherever the last kernel left them. Whole networks (of the search spaces, measured anyway) calibrate the sum:

    latency = scale x kernels + reading of weights, where that takes longer + per megabyte of activations + per node

Intervals rest on networks of families the calibration did not see (each space left out in turn), because a model someone
else wrote is of no known family either.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import conformal, registry, stats
from hwbench.core.command import command
from hwbench.core.errors import DataError, MissingOps, UsageError
from hwbench.core.progress import Tick, no_tick
from hwbench.device import files as devices
from hwbench.device.agent.environment import Environment
from hwbench.device.target import Target
from hwbench.lut import table as luts
from hwbench.lut.table import Lut
from hwbench.network import onnx_writer, work
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor import card as cards
from hwbench.predictor import fit, space_latency
from hwbench.predictor.card_types import ONNX, OnnxCard
from hwbench.predictor.op_latency import OpModel
from hwbench.profiler import kernel_detection
from hwbench.profiler.kernel_detection import Anatomy
from hwbench.profiler.networks import measure_networks
from hwbench.space import lowering as spaces
from hwbench.space.architectures import Architectures

KERNELS = 1440
"""Kernels of the grid that a predictor of any model is to be fitted on."""
TERMS = ("rows_ms", "activations_mb", "nodes")
BELIEF = 0.03
"""How firmly, before any network is seen, kernels are believed to add up as measured (relative weight of one network)."""
USUAL = (1.0, 0.05, 2e-4)
"""What each term may plausibly weigh: a ratio, ms per megabyte, ms per node: the yardstick of that belief."""
STREAMED_BYTES = 60_000_000
"""Single-row products with more weights than this tell how fast memory is read: few last caches hold them."""
THIN = 4
"""Rows up to which a product does less arithmetic than reading."""
MOST_EACH = 16
"""Networks of each set and space that are used: more take time to take apart and tell nothing new of five weights."""
REACH = 1e4
"""Kernels beyond the measured sizes are priced as far as that: their roofline is physics, and doubt grows with distance."""


@dataclass(frozen=True)
class Layer:
    """One kernel of a model."""

    name: str
    kernel: str
    latency_ms: float
    """Its part of the model's latency."""
    measured: bool
    """Whether this very kernel was measured, rather than priced by a model of others."""
    doubt: float
    """Of its price, relative."""


@dataclass(frozen=True)
class Appraisal:
    """What is known of one model's latency."""

    model: str
    device: str
    runtime: str
    setting: str
    statistic: str
    latency_ms: float
    low_ms: float
    high_ms: float
    coverage: float
    """Share of the latency that measured kernels answer for; a model of kernels answers for the rest."""
    layers: tuple[Layer, ...]
    fused: Mapping[str, int]
    source: str


@dataclass(frozen=True)
class Prices:
    """What kernels cost, from a table's rows and a model of them."""

    model: OpModel
    rows_ms: Mapping[str, float]
    stream_ms_per_mb: float = 0.0
    """Least time a megabyte of weights takes to come from memory."""
    cache_bytes: int = 0
    """What the last cache holds: weights of a model that fit into it stay there."""

    def of(self, specs: Sequence[OpSpec]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(ms alone, relative doubt, whether measured) of each kernel; NaN where neither table nor model knows it."""
        ms, doubt = self.model.predict(specs)
        measured = np.array([spec.key in self.rows_ms for spec in specs])
        ms = np.where(measured, [self.rows_ms.get(spec.key, np.nan) for spec in specs], ms)
        return ms, np.where(measured, 0.0, doubt), measured

    def in_network(self, specs: Sequence[OpSpec]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The same for all kernels of one model, repeats included, and which of them last as long as reading their weights."""
        distinct = list(dict.fromkeys(specs))
        at = {spec: i for i, spec in enumerate(distinct)}
        ms, doubt, measured = (values[[at[spec] for spec in specs]] for values in self.of(distinct))
        weights = np.array([_weights_mb(spec) for spec in specs])
        reading_ms = weights * self.stream_ms_per_mb * (weights.sum() * 1e6 > self.cache_bytes)
        return np.maximum(ms, reading_ms), doubt, measured, reading_ms > ms


def _weights_mb(spec: OpSpec) -> float:
    return ops.op_of(spec).work(spec).parameters_read * 4 / 1e6


def stream_ms_per_mb(rows_ms: Mapping[str, float]) -> float:
    """How long a megabyte takes to come from memory, from single-row products with huge weights; 0 if none was measured."""
    found = []
    for key, ms in rows_ms.items():
        spec = OpSpec.parse(key)
        megabytes = _weights_mb(spec)
        if megabytes * 1e6 >= STREAMED_BYTES and ops.describe(spec)[1].get("m", THIN + 1) <= THIN:
            found.append(ms / megabytes)
    return float(np.median(found)) if found else 0.0


@dataclass(frozen=True)
class Terms:
    """One network's sums, and the doubt of its kernels' prices."""

    values: np.ndarray
    """One per TERMS."""
    reading_ms: float
    """Kernels that last as long as reading their weights: not scaled, memory is as fast in a network as alone."""
    doubt_ms: float


def kernel_rows(table: Lut, setting: Setting) -> dict[str, float]:
    """Measured kernels of a table by key."""
    found = {key: row["latency_min_ms"] for (key, at), row in table.rows.items() if at == setting.key}
    return {key: float(ms) for key, ms in found.items() if ms and key.startswith("kernel(")}


def node_terms(spec: OpSpec) -> tuple[float, float]:
    """What one node adds beside its kernel's price: (megabytes of activations, node)."""
    inputs, outputs = ops.op_of(spec).signature(spec)
    passed = sum(int(np.prod(t.shape)) * work.ITEM_BYTES[t.dtype] for t in (*inputs, *outputs))
    return passed / 1e6, 1.0


def terms_of(found: Anatomy, prices: Prices) -> Terms:
    """A model's sums; NaN where a kernel has no price."""
    specs = [spec for _, spec in found.layers]
    ms, doubt, _, reading = prices.in_network(specs)
    off: dict[OpSpec, float] = {}
    for spec, part in zip(specs, ms * doubt, strict=True):  # one kernel's price is wrong the same way each time
        off[spec] = off.get(spec, 0.0) + float(part)
    others = np.array([node_terms(spec) for spec in specs]).sum(axis=0)
    doubt_ms = float(np.sqrt(sum(part**2 for part in off.values())))
    return Terms(np.array([float(ms[~reading].sum()), *others]), float(ms[reading].sum()), doubt_ms)


def calibrate(terms: Sequence[Terms], measured_ms: np.ndarray) -> np.ndarray:
    """Weights of the terms: least relative error, none negative, drawn to "kernels add up" where networks do not tell."""
    from scipy.optimize import nnls

    matrix = np.array([t.values for t in terms]) / measured_ms[:, None]
    left = 1 - np.array([t.reading_ms for t in terms]) / measured_ms
    belief = BELIEF * len(terms) ** 0.5 * np.diag(1 / np.array(USUAL))
    wanted = np.concatenate([left, belief @ np.eye(len(TERMS))[0]])
    return np.asarray(nnls(np.vstack([matrix, belief]), wanted)[0])


def fit_models(
    space: str | Sequence[str],
    device: str = "local",
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    workspace: str | Path = ".",
    networks: int = 16,
    holdout: int = 16,
    seed: int = 0,
    stored: bool = False,
    tick: Tick = no_tick,
) -> OnnxCard:
    """Fits the prices of kernels and their calibration; returns the card.

    The networks are those of `hwbench fit` with the same numbers; the first MOST_EACH of each set are taken apart.

    Args:
        space: Spaces whose networks calibrate; two or more, so that one can be left out.
        device: `local` or a device's name.
        runtime: Inference runtime.
        setting: dtype, threads.
        workspace: Where table and networks are and the predictor goes.
        networks: Networks to fit, per space.
        holdout: Networks to state errors on, per space; never fitted on.
        seed: Draws both sets.
        stored: Measure nothing: all networks must be in the stored table of networks.
        tick: Progress.
    """
    names = [space] if isinstance(space, str) else list(space)
    if len(names) < 2:
        raise UsageError("Calibrating kernels needs at least two --space, so that one can be left out to test the other.")
    target = Target.of(device, runtime, setting, workspace)
    place = target.workspace
    table = Lut.read(luts.find_lut(place, target.device, runtime), local=target.local)
    rows_ms = kernel_rows(table, setting)
    if not rows_ms:
        profile = command("profile", kernels=KERNELS, **target.options)
        raise UsageError(f"{table.path} has no kernels at {setting.key}. Run: {profile}")
    model = OpModel(reach=REACH)
    model.fit([OpSpec.parse(key) for key in rows_ms], np.array(list(rows_ms.values())), setting)
    caches = devices.get(target.device, place.root).caches_bytes
    prices = Prices(model, rows_ms, stream_ms_per_mb(rows_ms), max(caches.values(), default=0))
    training, heldout = (
        [Architectures(a.space, a.population[:, :MOST_EACH]) for a in drawn]
        for drawn in fit.calibration_sets(names, networks, holdout, seed)
    )
    everything = [*training, *heldout]
    if stored:
        measured = fit.stored_networks(everything, target)
    else:
        measured = measure_networks(everything, target.device, runtime, setting, place.root, tick=tick)
    taken_apart = _anatomies(everything, runtime, setting)
    _require_prices(taken_apart, prices, target)
    terms = {key: terms_of(found, prices) for key, found in taken_apart.items()}
    document = _calibrated(training, heldout, terms, measured)
    values, arrays = model.state()
    card = {
        "kind": ONNX,
        **fit.provenance(target, table, names, (networks, holdout), seed),
        "data": {**cards.data_of(table.path, len(rows_ms)), "networks": len(measured)},
        "features": list(TERMS),
        "errors": {"test": document["min"]["holdout"], "unseen_family": document["min"]["unseen_family"]},
        "coverage": document["min"]["coverage"],
        "noise_ceiling": fit.noise_ceiling([measured[k] for k in terms], "min"),
        "statistics": document,
        "kernels": {
            "rows": len(rows_ms),
            "error_by_group": model.errors,
            "stream_ms_per_mb": prices.stream_ms_per_mb,
            "cache_bytes": prices.cache_bytes,
            "state": values,
        },
        "rebuild": space_latency.fit_command(
            target, names, kernels=True, networks=networks, holdout=holdout, seed=seed, stored=True
        ),
    }
    return cards.write(place.path("predictors", target.device, _folder(target)), OnnxCard, card, arrays)


def _require_prices(found: Mapping[str, Anatomy], prices: Prices, target: Target) -> None:
    """Raises MissingOps if a network holds a kernel that neither table nor model knows."""
    specs = list({spec: None for each in found.values() for _, spec in each.layers})
    missing = sorted(spec.key for spec, ms in zip(specs, prices.of(specs)[0], strict=True) if np.isnan(ms))
    if missing:
        raise MissingOps(
            f"{len(missing)} kernels of the calibration networks have no price at {target.setting.key}; first: {missing[0]}. "
            f"Run: {command('profile', kernels=KERNELS, **target.options)}",
            missing,
        )


def _folder(target: Target) -> str:
    return f"{ONNX}-{target.runtime}-{target.setting.key}"


def _anatomies(sets: Sequence[Architectures], runtime: str, setting: Setting) -> dict[str, Anatomy]:
    """Every network taken apart, as its exported file would be."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="hwbench-") as folder:
        path = Path(folder) / "network.onnx"
        for architectures in sets:
            every = spaces.networks(architectures.space, architectures.population)
            for key, network in zip(architectures.keys, every, strict=True):
                with path.open("wb") as stream:
                    onnx_writer.write_model(network, setting, stream, light=True)
                found[key] = kernel_detection.dissect(path, runtime, setting)
    return found


def _calibrated(
    training: Sequence[Architectures],
    heldout: Sequence[Architectures],
    terms: Mapping[str, Terms],
    measured: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Weights, errors and intervals for each statistic."""
    fit_keys, test_keys = ([key for a in sets for key in a.keys] for sets in (training, heldout))
    document: dict[str, Any] = {}
    for statistic, column in luts.STATISTICS.items():

        def truth(keys: Sequence[str]) -> np.ndarray:
            return np.array([float(measured[k][column]) for k in keys])  # noqa: B023

        def guess(weights: np.ndarray, keys: Sequence[str]) -> np.ndarray:
            return np.array([terms[k].values @ weights + terms[k].reading_ms for k in keys])

        weights = calibrate([terms[k] for k in fit_keys], truth(fit_keys))
        strange_keys: list[str] = []
        strange: list[np.ndarray] = []
        for i, left_out in enumerate(heldout):
            seen = [key for j, a in enumerate(training) if j != i for key in a.keys]
            strange.append(guess(calibrate([terms[k] for k in seen], truth(seen)), left_out.keys))
            strange_keys += left_out.keys
        predicted = np.concatenate(strange)
        # Doubt of a family never seen, beside that of the kernels' prices.
        family = float(np.sqrt(np.mean(np.log(truth(strange_keys) / predicted) ** 2)))
        doubt = np.hypot([terms[k].doubt_ms for k in strange_keys] / predicted, family)
        band, how = conformal.interval(predicted, truth(strange_keys), doubt)
        document[statistic] = {
            "weights": dict(zip(TERMS, weights.tolist(), strict=True)),
            "family_doubt": family,
            "band": {**band.state(), "how": how},
            "coverage": conformal.coverage_evidence(predicted, truth(strange_keys)),
            "holdout": asdict(stats.accuracy(guess(weights, test_keys), truth(test_keys))),
            "unseen_family": {
                a.space.name: asdict(stats.accuracy(p, truth(a.keys))) for a, p in zip(heldout, strange, strict=True)
            },
        }
    return document


@dataclass(frozen=True)
class Appraiser:
    """A fitted predictor of models."""

    folder: Path
    card: OnnxCard
    target: Target
    prices: Prices

    def appraise(self, found: Anatomy, statistic: str = "min") -> Appraisal:
        """Prices a model that was taken apart.

        Raises:
            MissingOps: a kernel has neither a row nor a model; the message names it and what would measure it.
        """
        if found.unknown:
            node, why = next(iter(found.unknown.items()))
            raise DataError(f"{found.path}: {len(found.unknown)} nodes cannot be priced; first '{node}': {why}.")
        part = self.card.statistics[statistic]
        weights = np.array([part.weights[term] for term in TERMS])
        specs = [spec for _, spec in found.layers]
        ms, doubt, measured, reading = self.prices.in_network(specs)
        self._require(found, specs, ms)
        shares = np.array([[0.0, *node_terms(spec)] for spec in specs]) @ weights + np.where(reading, ms, weights[0] * ms)
        total = float(shares.sum())
        terms = terms_of(found, self.prices)
        scale = float(np.hypot(terms.doubt_ms / total, part.family_doubt))
        low, high = part.band.band.bounds(np.array([total]), np.array([scale]))
        return Appraisal(
            model=str(found.path),
            device=self.target.device,
            runtime=self.target.runtime,
            setting=self.target.setting.key,
            statistic=statistic,
            latency_ms=total,
            low_ms=float(low[0]),
            high_ms=float(high[0]),
            coverage=float(shares[measured].sum() / total),
            layers=tuple(
                Layer(name, spec.key, float(s), bool(m), float(d))
                for (name, spec), s, m, d in zip(found.layers, shares, measured, doubt, strict=True)
            ),
            fused=found.fused,
            source=str(self.folder),
        )

    def _require(self, found: Anatomy, specs: Sequence[OpSpec], ms: np.ndarray) -> None:
        missing = sorted({spec.key for spec, price in zip(specs, ms, strict=True) if np.isnan(price)})
        if missing:
            kinds = sorted({str(OpSpec.parse(key)["type"]) for key in missing})
            raise MissingOps(
                f"{found.path}: {len(missing)} kernels have no price on {self.target.device} ({', '.join(kinds)}); first: "
                f"{missing[0]}. Run: {command('profile', model=found.path, **self.target.options)}",
                missing,
            )


def load(target: Target) -> Appraiser:
    """The fitted predictor of models of a target; asked for as `local`, it must be of this very machine."""
    found = target.workspace.find("predictors", target.device, _folder(target), cards.CARD)
    if found is None:
        raise nothing_fitted(target)
    card = cards.read_as(OnnxCard, found.parent, "one of ONNX models is asked.")
    if target.local:
        luts.check_local(Environment(card.environment), found)
    model = OpModel()
    model.restore(card.kernels.state, cards.read_arrays(found.parent, card))
    prices = Prices(model, _rows(target, card), card.kernels.stream_ms_per_mb, card.kernels.cache_bytes)
    return Appraiser(found.parent, card, target, prices)


def nothing_fitted(target: Target) -> UsageError:
    """The refusal where no predictor of ONNX models was fitted for a target: who has one, and the commands that make one."""
    others = target.workspace.each("predictors", pattern=f"*/{ONNX}-*/{cards.CARD}")
    have = sorted({path.parts[-3] for path in others})
    profile = command("profile", kernels=KERNELS, **target.options)
    return UsageError(
        f"No predictor of ONNX models of {target.name}; there are some for: {', '.join(have) or 'no device'}. "
        f"Run: {profile} && {command('fit', kernels=True, space=['autoformer-tiny', 'bert'], **target.options)}"
    )


def _rows(target: Target, card: OnnxCard) -> dict[str, float]:
    """Kernels measured on the card's machine, also after it was fitted (`hwbench profile --model`)."""
    path = target.workspace.find("luts", target.device, f"{target.runtime}.parquet")
    if path is None:
        return {}
    table = Lut.read(path)
    alike = not table.environment.differences(Environment(card.environment))
    return kernel_rows(table, target.setting) if alike else {}


def appraise(
    model: str | Path, target: Target, statistic: str = "min", shapes: Mapping[str, Sequence[int]] | None = None
) -> Appraisal:
    """The latency of an ONNX file on a target."""
    space_latency.check_statistic(statistic)
    registry.get("runtime", target.runtime)
    return load(target).appraise(kernel_detection.dissect(model, target.runtime, target.setting, shapes), statistic)
