"""What few measurements and many other devices tell of a new one, stored, and as a `LatencyModel`.

    hwbench transfer --known KNOWN.parquet --measured MEASURED.parquet --features A,B --device NAME --out predictors/NAME/SPACE

A transfer predicts the architectures its tables list and no others. So it answers for a space whose genes are its columns and
whose every network it lists. Its interval comes from known devices treated as new, on this very space: it is certified
where the new device is found to be like them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import conformal
from hwbench.core.command import command, form, stored_command
from hwbench.core.errors import UsageError
from hwbench.core.genes import ENUMERABLE
from hwbench.device.target import Target
from hwbench.network.graph import Workload
from hwbench.predictor import card as cards
from hwbench.predictor.base import Facts, Latencies, Refusal
from hwbench.predictor.card_types import TRANSFER, Choice, TransferCard
from hwbench.predictor.space_latency import check_statistic
from hwbench.predictor.tabular import latency as tabular
from hwbench.predictor.tabular import positions
from hwbench.predictor.tabular.facts import facts_of
from hwbench.predictor.tabular.positions import ABSENT, Position
from hwbench.space import activity
from hwbench.space.base import Population, Space
from hwbench.space.compiled import CompiledSum

SAMPLE = 1000
"""Architectures looked up to say how much of a large space is lacking."""


# The interval of a new device


def new_device_band(pairs: Sequence[np.ndarray], coverage: float) -> conformal.Band:
    """From what was predicted, measured and doubted (float[3, n]) of each known device when it was treated as new."""
    predicted, measured, doubt = np.concatenate(pairs, axis=1)
    return conformal.calibrate(predicted, measured, _asked(coverage, len(pairs)), doubt)


def covered_as_new(pairs: Sequence[np.ndarray], coverage: float) -> list[float]:
    """Of each known device: how often the interval that the others alone give it holds; empty with too few of them."""
    others = [[*pairs[:i], *pairs[i + 1 :]] for i in range(len(pairs))]
    needed = conformal.least_pairs(_asked(coverage, len(pairs) - 1))
    if min(sum(part.shape[1] for part in each) for each in others) < needed:
        return []
    bands = [new_device_band(each, coverage) for each in others]
    return [conformal.covered(*band.bounds(p, doubt), m) for band, (p, m, doubt) in zip(bands, pairs, strict=True)]


def _asked(coverage: float, devices: int) -> float:
    """Asked of a band so that it keeps its promise on a new device: one more than those it was learnt from."""
    return coverage + (1 - coverage) / (devices + 1)


# Stored


def check_places(output: str | Path | None, out: str | Path | None, device: str | None) -> None:
    """Raises UsageError unless it is said where predictions go, and whose they are where they are kept."""
    if output is None and out is None:
        raise UsageError(
            "Say where predictions go: --output FILE.parquet for a table, --device NAME --out DIR for a predictor."
        )
    if (out is None) != (not device):
        raise UsageError("--out DIR and --device NAME go together: a stored predictor is one of a named device.")


@dataclass(frozen=True)
class Predictions:
    """Architectures and what is predicted of each."""

    choices: Sequence[Position]
    answers: np.ndarray
    """float[3, n]: value, low, high, in ms."""
    measured: np.ndarray
    """bool[n]: which of them were measured on the new device."""


def store(
    out: Path,
    device: str,
    tables: tuple[str | Path, str | Path],
    predictions: Predictions,
    done: Mapping[str, Any],
    pairs: Sequence[np.ndarray],
    judged: int,
) -> TransferCard:
    """Writes card and arrays of a transfer; returns the card.

    Args:
        out: Folder.
        device: The new device.
        tables: Known devices, measurements of the new one.
        predictions: What is stored.
        done: The transfer's own account (`Transfer.document`).
        pairs: Of each known device treated as new: predicted, measured, doubt.
        judged: Architectures each of those was judged on, at most.
    """
    features = list(dict.fromkeys(each.column for each in predictions.choices))
    known, new = (cards.data_of(path, 0) | {"file": _shown(path)} for path in tables)
    rebuild = stored_command(
        "transfer",
        known=known["file"],
        measured=new["file"],
        features=",".join(features),
        coverage=str(done["coverage"]),
        device=device,
        out=cards.shown_folder(out),
    )
    card = {
        "kind": TRANSFER,
        "device": device,
        "data": [
            {**known, "rows": None, "architectures": done["architectures"], "devices": done["known_devices"]},
            {**new, "rows": done["measured"]},
        ],
        "target": "latency_ms",
        "features": features,
        "choices": [{"column": each.column, "place": each.place, "levels": list(each.levels)} for each in predictions.choices],
        "trust": done["trust"],
        "reason": done["reason"],
        "unexplained": done["unexplained"],
        "nearest": done["nearest"],
        "errors": {"test": _errors(done, len(pairs), judged)},
        "coverage": _coverage(pairs, done),
        "noise_ceiling": {"mean_abs_error": None, "reason": "nobody measured the new device twice"},
        "warnings": list(done["warnings"]),
        "rebuild": rebuild,
    }
    codes = np.array([each.codes for each in predictions.choices], np.int32)
    return cards.write(
        out, TransferCard, card, {"codes": codes, "answers": predictions.answers, "measured": predictions.measured}
    )


def _errors(done: Mapping[str, Any], devices: int, judged: int) -> dict[str, Any]:
    return {
        "n": judged,
        "mean_abs_error": done["rehearsed_error"],
        "spearman": done["rehearsed_spearman"],
        "spearman_worst": done["rehearsed_spearman_worst"],
        "how": f"each of {devices} known devices treated as new: error of the median device, mean rank correlation",
    }


def _coverage(pairs: Sequence[np.ndarray], done: Mapping[str, Any]) -> dict[str, Any]:
    found = covered_as_new(pairs, done["coverage"])
    if not found:
        return {"asked": done["coverage"], "covered": None, "reason": "too few known devices to set one aside"}
    return {
        "n": len(found),
        "asked": done["coverage"],
        "covered": float(np.mean(found)),
        "covered_worst": min(found),
        "median_width": done["median_width"],
        "how": "each known device in turn, by the interval the others give it",
    }


def _shown(path: str | Path) -> str:
    """A path as a card may name it: never a machine's folder."""
    return Path(path).name if Path(path).is_absolute() else Path(path).as_posix()


# Asked


@dataclass
class TransferLatency:
    """A stored predictor of kind "transfer"."""

    folder: Path
    card: TransferCard
    name: str
    """Device and folder, as `hwbench list predictors` shows it."""
    arrays: Mapping[str, np.ndarray]
    target: Target
    """The device of its card, and whatever else was asked: a table does not state the setting it was measured under."""
    statistics: tuple[str, ...] = tabular.STATISTICS
    """Its tables have one number, whatever statistic that is: it answers for both, and its note says so."""

    @classmethod
    def open(cls, folder: Path, card: TransferCard, target: Target, name: str = "") -> TransferLatency:
        """The predictor of a card, with its arrays; a copy tells the name of the original.

        Raises:
            DataError: the arrays are not the ones it was written with.
        """
        folder = Path(folder)
        stated = replace(target, device=card.device)
        return cls(folder, card, name or f"{card.device}/{folder.name}", cards.read_arrays(folder, card), stated)

    def for_space(self, space: Space, statistic: str) -> TransferSpace | Refusal:
        """What it knows of a space: everything, if it lists every network of it, or nothing."""
        check_statistic(statistic)
        why = next(_foreign(space, self.card.choices), None) or tabular.unlike(space, self.card)
        rows = None if why is not None else self._listed(space)
        if why is not None or not isinstance(rows, np.ndarray):
            again = {"known": "FILE.parquet", "measured": "FILE.parquet", **tabular.options(space, self.target.device)}
            return Refusal(
                f"{self.name} cannot tell latencies of {space.name}: {why or rows}. It knows {self._size} architectures "
                f"by the columns {', '.join(self.card.features)}. {tabular.todo(space, command('transfer', **again))}"
            )
        # What is not listed (combinations that are no network) is unknown, never a number: row -1 is not a number.
        answers = np.pad(self.arrays["answers"], ((0, 0), (0, 1)), constant_values=np.nan)
        measured = np.append(self.arrays["measured"], False).astype(float)
        sizes = tuple(len(gene.choices) for gene in space.genes)
        return TransferSpace(self._facts(space), sizes, rows, answers, measured)

    def predict_networks(self, workloads: Sequence[Workload], statistic: str) -> Latencies | Refusal:
        """Nothing: a transfer knows the architectures of its tables, no networks."""
        return Refusal(
            f"{self.name} cannot tell latencies of {len(workloads)} networks: it knows {self._size} architectures by the "
            f"columns {', '.join(self.card.features)}, no networks; search a space that has these as genes, "
            f"{form(command('search', device=self.target.device, space='SPACE', budget_ms='MS', out='FOLDER'))}"
        )

    @property
    def _size(self) -> int:
        return int(self.arrays["codes"].shape[1])

    def _listed(self, space: Space) -> np.ndarray | str:
        """The row of every combination of genes, -1 where there is none; or what is lacking."""
        sizes = [len(gene.choices) for gene in space.genes]
        if math.prod(sizes) > ENUMERABLE:
            drawn = activity.sample(space, SAMPLE, np.random.default_rng(0))
            lacking = int((self._rows(space, drawn) < 0).sum())
            return f"the space has {activity.size(space):.3g} architectures; of {SAMPLE} drawn at random, {lacking} are lacking"
        whole = tabular.every_combination(sizes)
        form = activity.canonical(space, whole)
        rows = self._rows(space, form)
        networks = (form == whole).all(axis=0) & activity.valid(space, form)
        lacking = int((rows[networks] < 0).sum())
        return f"{lacking} of its {int(networks.sum())} networks are lacking" if lacking else rows

    def _rows(self, space: Space, population: Population) -> np.ndarray:
        """Where each (canonical) architecture is listed; -1 where it is not."""
        both = []
        for choice, stored in zip(self.card.choices, self.arrays["codes"], strict=True):
            levels = choice.levels
            (at,) = (i for i, g in enumerate(space.genes) if (g.name, g.layer) == (choice.column, choice.place))
            codes = np.array([levels.index(value) for value in space.genes[at].choices])[population[at]]
            if _shorter(choice):
                codes = np.where(activity.active(space, [at], population)[0], codes, len(levels) - 1)
            both.append(Position(choice.column, choice.place, levels, np.concatenate([stored, codes])))
        _, group = positions.distinct(both)
        row = np.full(group.max() + 1, -1)
        row[group[: self._size]] = np.arange(self._size)
        return np.asarray(row[group[self._size :]])

    def _facts(self, space: Space) -> Facts:
        card, (known, new) = self.card, self.card.data
        doubt = "" if card.trust else f"; DO NOT TRUST: {card.reason}"
        note = (
            f"from {new.rows} measurements of the device and {known.devices} other devices ({new.file}, {known.file}); "
            f"the tables' {card.target}, whatever statistic that is{doubt}"
        )
        return facts_of(card, self.name, space.name, (card.coverage or {})["asked"], card.trust, note)


@dataclass
class TransferSpace:
    """The latencies of one space's networks, as a transfer lists them."""

    facts: Facts
    sizes: tuple[int, ...]
    rows: np.ndarray
    """Of every combination of genes."""
    answers: np.ndarray
    measured: np.ndarray
    margin: float | None = None
    """Each interval is as wide as the transfer doubts."""
    compiled: CompiledSum | None = None

    def predict(self, population: Population) -> Latencies:
        """The latency of every architecture; covered are those that were measured on the device, the others are modelled."""
        at = self.rows[tabular.combination(population, self.sizes)]
        value, low, high = self.answers[:, at]
        return Latencies(value, low, high, self.measured[at])


def _shorter(choice: Choice) -> bool:
    """Whether some list ends before this place."""
    return choice.place is not None and bool(choice.levels[-1] == ABSENT)


def _foreign(space: Space, choices: Sequence[Choice]) -> Iterator[str]:
    """Everything in which the tables and the space differ, the plainest first."""
    yield from tabular.unlike_columns(space, list(dict.fromkeys(choice.column for choice in choices)))
    stated = {(choice.column, choice.place): choice for choice in choices}
    genes = {(gene.name, gene.layer): gene for gene in space.genes}
    for column, place in stated:
        if (column, place) not in genes:
            yield f"its column '{column}' has {'one value' if place is None else f'an entry {place}'}, the gene has not"
    for key, gene in genes.items():
        if key not in stated:
            yield f"its column '{gene.name}' has no entry for {gene.label}"
            continue
        choice = stated[key]
        yield from tabular.unlike_levels(gene.label, choice.levels[: -1 if _shorter(choice) else None], gene.choices)
