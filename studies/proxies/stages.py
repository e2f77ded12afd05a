"""What is scored, and what is made of it; the terms of every network are kept when they are known.

A stage per table and score ("autoformer snip"), in the order of what they are worth: a run that is stopped is of use. The last
stages put together what is there: `--again agreement --again claims --again terms` once there is more.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from hwbench.core.errors import UsageError
from hwbench.space.architectures import of_values
from studies.harness import Run
from studies.proxies import analysis, own_score, scores, second_try, tables
from studies.proxies.agreement import RESAMPLES
from studies.proxies.analysis import Terms, View
from studies.proxies.scores import Proxy
from studies.proxies.synaptic_parts import LOSSES, SynapticParts
from studies.proxies.tables import SOURCES, Known

CHEAP = ("params", "flops", "depth", "width", "hwbench", "dss", "dss-plus-plus", "naswot")
GRADIENTS = ("snip", "grad-norm", "synflow", "az", "dss-reference", "ntk-trace", "gradsign", "te-score", "grasp")
DEAR = ("mgm",)
PROXIES = (*CHEAP, *GRADIENTS, *DEAR)
ABLATED = ("cifar10", "autoformer")
"""Tables on which seeds, initialisations, inputs and losses are varied."""
KINDS = (
    "normal", "truncated-normal", "uniform", "xavier-uniform", "xavier-normal", "kaiming-uniform", "kaiming-normal",
    "orthogonal",
)  # fmt: skip
DRAWS, WEIGHT_SEEDS = 10, 4
TRIAL_DRAWS = 2
PIT = {"mlp_ratio": 4, "depth": [2, 6, 4]}
FAMILY = {
    "pit-ti": {**PIT, "base_dim": 32, "heads": "2-4-8"},
    "pit-xs": {**PIT, "base_dim": 48, "heads": "2-4-8"},
    "pit-s": {**PIT, "base_dim": 48, "heads": "3-6-12"},
}
"""The published PiT networks, smallest first."""
TRIAL_SAMPLES = 50
Stage = Callable[[Run], Any]


def stages(options: argparse.Namespace) -> Mapping[str, Stage]:
    """Cheap scores of all tables first, ablations next, dear scores last."""
    here = [name for name in SOURCES if tables.there(options, name)]
    found: dict[str, Stage] = {}
    for group in (CHEAP,) if options.tiny else (CHEAP, GRADIENTS, DEAR):
        pairs = [(table, name) for table in here for name in group if name in (SOURCES[table].only or PROXIES)]
        found |= {f"{table} {name}": partial(scored, table=table, proxy=name) for table, name in pairs}
        if group == CHEAP:
            found |= {f"{table} parts": partial(taken_apart, table=table) for table in here if not SOURCES[table].only}
            found |= {
                f"{table} {kind}": partial(ablated, table=table, kind=kind)
                for table in ABLATED
                if table in here
                for kind in VARIED
            }
    found |= {"families": families, "agreement": agreement, "claims": claims, "choice": choice, "second try": tried_again}
    found["verdict"] = verdict
    found["terms"] = terms
    return found


def scored(run: Run, table: str, proxy: str) -> dict[str, Any]:
    """A table's networks by one score."""
    return _summary(scores.told(run, tables.read(run, table), proxy))


def taken_apart(run: Run, table: str) -> dict[str, Any]:
    """The parts of DSS (claims 13 and 14)."""
    return _summary(scores.told(run, tables.read(run, table), SynapticParts(), f"{table}: parts of DSS"))


def ablated(run: Run, table: str, kind: str) -> dict[str, Any]:
    """DSS++ under other seeds, initialisations, inputs or losses (claims 16 to 18)."""
    known = tables.read(run, table)
    return {
        name: _summary(scores.told(run, known, part, f"{table}, {kind}: {name}")) for name, part in VARIED[kind](run).items()
    }


def _summary(found: Mapping[str, Any]) -> dict[str, Any]:
    """How many have a score, and why others have none."""
    return {"networks": len(found["scores"]), "no score": dict(Counter(found["failed"].values()))}


def weight_seeds(run: Run) -> dict[str, SynapticParts]:
    """The first is that of everything else; the last differs in what is not a weight."""
    several = {f"weights {seed}": SynapticParts(seed=seed) for seed in range(TRIAL_DRAWS if run.tiny else WEIGHT_SEEDS)}
    return {**several, "data 1": SynapticParts(data_seed=1)}


def initialisations(run: Run) -> dict[str, SynapticParts]:
    """Those of the claim."""
    return {kind: SynapticParts(initialisation=kind) for kind in (KINDS[:TRIAL_DRAWS] if run.tiny else KINDS)}


def inputs(run: Run) -> dict[str, SynapticParts]:
    """All ones once, noise several times; images where data sets are given."""
    draws = range(TRIAL_DRAWS if run.tiny else DRAWS)
    found = {"ones": SynapticParts()}
    found |= {f"{kind} {seed}": SynapticParts(input=kind, data_seed=seed) for kind in ("uniform", "noise") for seed in draws}
    if run.options.datasets:
        found |= {f"images {seed}": part for seed, part in enumerate(_on_images(run, len(draws)))}
    return found


def _on_images(run: Run, count: int) -> Iterator[SynapticParts]:
    """On test images of CIFAR-10, enlarged."""
    from studies.own_benchmark import images

    data = images.read(run.options.datasets, run.tiny)
    chosen = data.scaled(data.test.pixels[:count]).numpy()
    return (SynapticParts(data_seed=seed, images=chosen, source=images.FOLDER) for seed in range(count))


def losses(run: Run) -> dict[str, SynapticParts]:
    """Those of the claim."""
    return {loss: SynapticParts(loss=loss) for loss in LOSSES}


VARIED: dict[str, Callable[[Run], dict[str, SynapticParts]]] = {
    "weight seeds": weight_seeds,
    "losses": losses,
    "initialisations": initialisations,
    "inputs": inputs,
}


def families(run: Run) -> dict[str, Any]:
    """DSS++ of the three published PiT networks (claim 21), each drawn from the weights of its own space."""
    from scipy.stats import rankdata

    found = {}
    for name, values in FAMILY.items():
        space = of_values(name, [values])
        known = Known(name, space.space, space.population, {}, (), np.zeros(1, int))
        (row,) = scores.told(run, known, "dss")["terms"]
        found[name] = {**row, "params": float(scores.values(scores.told(run, known, "params"))[0])}
    ranks = sum(rankdata([row[term] for row in found.values()]) for term in ("diversity", "saliency"))
    return {name: {**row, "dss-plus-plus": float(rank)} for (name, row), rank in zip(found.items(), ranks, strict=True)}


def views(run: Run) -> dict[str, View]:
    """Every table with the scores that are stored, once the baselines are."""
    here = [name for name in SOURCES if tables.there(run.options, name)]
    found = {name: view(run, name) for name in here if set(analysis.BASELINES) <= set(_stored(run, name))}
    if not found:
        raise UsageError(f"No table has all of {', '.join(analysis.BASELINES)} yet: run their stages first.")
    return found


def _stored(run: Run, table: str) -> list[str]:
    return [name for name in PROXIES if run.path(f"{table} {name}").exists()]


def view(run: Run, table: str) -> View:
    """One of them."""
    known = tables.read(run, table)
    found = {name: scores.told(run, known, name) for name in _stored(run, table)}
    parts = _parts(run, known, SynapticParts()) if run.path(f"{table} parts").exists() else None
    resamples = TRIAL_SAMPLES if run.tiny else RESAMPLES
    return View(known, {name: scores.values(each) for name, each in found.items()}, parts, resamples)


def _parts(run: Run, known: Known, part: SynapticParts) -> Terms:
    told = scores.told(run, known, part)
    return {name: scores.terms(told, name) for name in part.terms}


def agreement(run: Run) -> dict[str, Any]:
    """Kendall's tau of every stored score with the accuracies of every table."""
    return {name: each.agreement() for name, each in views(run).items()}


def claims(run: Run) -> dict[str, Any]:
    """Claims 11 to 14 and 16 to 19, as far as their scores are stored."""
    found: dict[str, Any] = {}
    for name, each in views(run).items():
        about: dict[str, Any] = {}
        if {"dss", "dss-plus-plus"} <= set(each.scores):
            about["order"], about["ranks"] = analysis.order(each), analysis.ranks_or_sum(each)
        if each.parts is not None:
            about["factors"], about["places"] = analysis.factors(each, each.parts), analysis.places(each, each.parts)
            names = [
                score for score in ("params", "flops", "hwbench", "naswot", "dss", "dss-plus-plus") if score in each.scores
            ]
            about["best of n"] = analysis.best_of_n(each, names)
        about |= {kind: _varied(run, each, kind) for kind in VARIED if run.path(f"{name} {kind}").exists()}
        found[name] = about
    return found


def _varied(run: Run, each: View, kind: str) -> dict[str, Any]:
    terms = {name: _parts(run, each.known, part) for name, part in VARIED[kind](run).items()}
    if kind == "weight seeds":
        *by_seed, other_data = terms.values()
        return analysis.seeds(each, by_seed, other_data)
    if kind == "inputs":
        draws: dict[str, list[Terms]] = {}
        for name, found in terms.items():
            draws.setdefault(name.partition(" ")[0], []).append(found)
        return analysis.inputs(each, draws)
    return {"initialisations": analysis.initialisations, "losses": analysis.losses}[kind](each, terms)


def choice(run: Run) -> list[dict[str, Any]]:
    """Forms of our own score on the first halves of the tables it was chosen on."""
    return own_score.choice(_chosen_on(run))


def tried_again(run: Run) -> dict[str, Any]:
    """Wider forms of our own score and combinations with others, by nested cross-validation on the first halves."""
    return second_try.second_try(_chosen_on(run))


def verdict(run: Run) -> dict[str, Any]:
    """Our own score beside every other one on networks that did not choose it."""
    chosen_on = _chosen_on(run)
    unseen = {name: each for name, each in views(run).items() if name not in chosen_on and own_score.NAME in each.scores}
    return own_score.verdict(chosen_on, unseen)


def _chosen_on(run: Run) -> dict[str, View]:
    found = {name: each for name, each in views(run).items() if name in own_score.TABLES and own_score.NAME in each.scores}
    if not found:
        raise UsageError(f"No table that {own_score.NAME} was chosen on has its scores yet: run their stages first.")
    return found


def terms(run: Run) -> dict[str, Any]:
    """All terms measured so far -> OUT/terms.parquet, which `--terms` takes up elsewhere."""
    path = run.out / "terms.parquet"
    return {"rows": scores.store(path, run.workspace, _asked(run))}


def _asked(run: Run) -> Iterator[tuple[Known, Proxy]]:
    for table in SOURCES:
        if tables.there(run.options, table):
            known = tables.read(run, table)
            yield from ((known, name) for name in SOURCES[table].only or PROXIES)
            if not SOURCES[table].only:
                yield known, SynapticParts()
            if table in ABLATED:
                yield from ((known, part) for vary in VARIED.values() for part in vary(run).values())
