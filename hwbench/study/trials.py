"""The trials of a search as a page shows them: cost, bound, score and genes of each, and what each costs block by block.

A page holds at most MAX of them, thinned evenly; finalists and the front are always there. Genes are one character each
(`chr(48 + choice)`, a dot where the gene is not read), as hundreds of kilobytes become tens so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import schema
from hwbench.core.errors import DataError
from hwbench.optimize import schema as optimize_schema
from hwbench.optimize.cost_kind import LATENCY, UPPER, upper_name
from hwbench.optimize.result import SearchResult
from hwbench.predictor.base import Refusal
from hwbench.predictor.models import Chosen
from hwbench.space import activity, slots
from hwbench.space.base import Space
from hwbench.study.render import measuring
from hwbench.study.winner_time import prices_of

MAX = 3000
MAX_STATES = 60_000
"""Combinations of choices, over all blocks, up to which a page holds the time of each."""
OWN = ("trial", "genes", "cost", "upper", "accuracy", "feasible")


@dataclass(frozen=True)
class Trials:
    """Those of one search that have a score."""

    space: Space
    cost: str
    """Its first limited cost, which `cost` and `upper` of a row are about."""
    rows: Sequence[Mapping[str, Any]]
    """OWN and further costs of each, by the order of evaluation."""
    shown: Sequence[Mapping[str, Any]]

    @property
    def exact(self) -> bool:
        """Whether the first cost has no upper bound of its own: it follows from the network alone."""
        return upper_name(self.cost) == self.cost

    @property
    def others(self) -> list[str]:
        """Further costs."""
        return [name for name in self.rows[0] if name not in OWN] if self.rows else []

    @property
    def words(self) -> str:
        """How many are shown."""
        if len(self.shown) < len(self.rows):
            return f"{len(self.shown):,} of the {len(self.rows):,} scored trials, evenly thinned"
        return f"all {len(self.rows):,} scored trials"


def read(folder: Path, result: SearchResult) -> Trials:
    """The scored trials a search left.

    Raises:
        DataError: they are not of the search's space.
    """
    table, _ = schema.read(folder / "trials.parquet", optimize_schema.TRIALS)
    space, first = result.networks.space, result.settings.first
    stored = [row for row in table.to_pylist() if row["accuracy"] is not None]
    marks = _genes(space, [row["architecture"] for row in stored], folder)
    every = [{LATENCY: row["latency_ms"], UPPER: row["upper_ms"], **dict(row["costs"] or {})} for row in stored]
    others = [name for name in dict.fromkeys(key for each in every for key in each) if name not in (first, upper_name(first))]
    others = [name for name in others if any(each.get(name) is not None for each in every)]
    rows = [
        {
            "trial": row["trial"], "genes": genes, "cost": costs[first], "upper": costs[upper_name(first)],
            "accuracy": row["accuracy"], "feasible": row["feasible"], **{name: costs.get(name) for name in others},
        }
        for row, genes, costs in zip(stored, marks, every, strict=True)
    ]  # fmt: skip
    return Trials(space, first, rows, _thinned(rows, result, first))


def _genes(space: Space, stored: Sequence[str], folder: Path) -> list[str]:
    """One character per gene."""
    wide = 2 * len(space.genes)
    if any(len(each) != wide for each in stored):
        raise DataError(f"{folder / 'trials.parquet'} holds architectures that are none of {space.name}: search again.")
    if not stored:
        return []
    population = np.frombuffer(bytes.fromhex("".join(stored)), np.uint8).reshape(len(stored), len(space.genes)).T
    read = activity.active(space, range(len(space.genes)), population)
    return [
        "".join(chr(48 + gene) if there else "." for gene, there in zip(*each, strict=True))
        for each in zip(population.T, read.T, strict=True)
    ]


def _thinned(rows: Sequence[Mapping[str, Any]], result: SearchResult, first: str) -> list[Mapping[str, Any]]:
    if len(rows) <= MAX:
        return list(rows)
    best = {(point.get(first), point["accuracy"]) for point in [*result.front, *result.finalists]}
    kept = [i for i, row in enumerate(rows) if (row["cost"], row["accuracy"]) in best][: MAX // 2]
    evenly = np.linspace(0, len(rows) - 1, MAX - len(kept)).astype(int).tolist()
    return [rows[i] for i in sorted({*kept, *evenly})]


def explorer(
    trials: Trials, result: SearchResult, noise: float | None, noise_words: str, chosen: Chosen | None = None
) -> dict[str, Any]:
    """What a page needs beside the rows to explore them.

    Args:
        trials: Of the search.
        result: The search.
        noise: What a difference of the cost has to exceed, relative; None where nothing is known of it.
        noise_words: How that is known.
        chosen: The predictor of the first cost, where blocks have times by it.
    """
    asked, genes = result.settings, trials.space.genes
    winner = "".join(_genes(trials.space, [result.networks.population[:, 0].tobytes().hex()], Path()))
    return {
        "space": trials.space.name,
        "genes": [{"name": gene.name, "layer": gene.layer, "choices": list(gene.choices)} for gene in genes],
        "costs": ["cost", *trials.others],
        "names": {"cost": trials.cost, "accuracy": "accuracy"},
        "upper": None if trials.exact else upper_name(trials.cost),
        "winner": next((row["trial"] for row in trials.shown if row["genes"] == winner), None),
        "noise": noise,
        "words": f"{trials.words}. {noise_words}",
        "commands": [
            "printf '%s' ARCHITECTURE > trial-N.json",
            *measuring(result, "trial-N.json", 0).replace("winner.onnx", "trial-N.onnx").split(" && "),
        ],
        **_blocks(trials.space, asked.statistic, chosen),
    }  # fmt: skip


def _blocks(space: Space, statistic: str, chosen: Chosen | None) -> dict[str, Any]:
    """Every block over the choices it depends on, with what it takes alone; or why that is not told."""
    if chosen is None:
        return {"slots": None, "why": "No time per block: no latency of this device is limited."}
    known = slots.slots(space)
    if sum(len(slot.specs) for slot in known) > MAX_STATES:
        return {"slots": None, "why": f"No time per block here: {space.name} has too many combinations for a page."}
    specs = slots.distinct_specs(space)
    prices = prices_of(chosen.model, specs, statistic)
    if isinstance(prices, Refusal):
        return {"slots": None, "why": f"No time per block: {chosen.latency.facts.name} tells whole networks only."}
    places = {spec: i for i, spec in enumerate(specs)}
    return {
        "ops": [[spec.key, *prices[spec]] for spec in specs],
        "slots": [
            [slot.node, slot.genes, slot.shape, [-1 if spec is None else places[spec] for spec in slot.specs], slot.repeat]
            for slot in known
        ],
    }
