"""A whole T-Razor search on two cores: DSS++ and block-wise evolution under a latency budget, the winner measured.

    python -m studies.t_razor_search --workspace W

W is where this machine's table and predictor of AutoFormer-tiny are; what lacks is measured into it. Stage `speed` compares
scores of the same networks in one process: a plain implementation that takes one network at a time (torch modules written from
the papers, `studies.torch_reference`; a nuclear norm is a sum of singular values), the exact score, the shortcut by two tokens.
The searches run as `hwbench search` in processes of their own, each in a workspace without scores: block-wise evolution as
T-Razor has it (160 generations of 50), its control that changes blocks at random, and random search, equal in number of scores.
All three ask only for networks within the budget. Stage `measured` measures their winners.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import kendalltau

import hwbench
from hwbench.accuracy.initial_weights import shared_weights
from hwbench.accuracy.network_proxy import Measured, NetworkScores
from hwbench.accuracy.synaptic import SynapticProxy
from hwbench.core import markdown, registry
from hwbench.core.errors import HwbenchError
from hwbench.core.files import read_json
from hwbench.device.target import Target
from hwbench.optimize.result import SearchResult
from hwbench.predictor import models
from hwbench.space.base import Space
from hwbench.space.lowering import lower
from hwbench.space.sample import sample
from hwbench.space.values import to_values
from studies import accuracy
from studies.harness import Results, Run, Study
from studies.options import WORKSPACE, Option
from studies.overhead import watched
from studies.torch_reference import Attention, ClassifierHead, Ffn, PatchStem, Whole, loaded

SPACE, HEAD_DIM, PROXY = "autoformer-tiny", 64, "dss-plus-plus-fast"
GENERATIONS, POPULATION = 160, 50
SEARCHES = {"block-evolution": "block-evolution", "control": "block-evolution-random", "random": "random:strict=1"}
"""Stage -> strategy."""
PUBLISHED_GPU_DAYS = 0.4
"""T-Razor's search on AutoFormer-tiny (Zhou et al. 2024)."""
REFERENCE_SECONDS = 1.19
"""Of processor time per AutoFormer-tiny network, the public TF-TAS code on another machine."""
SEED = 1611


def plain_module(space: Space, column: np.ndarray) -> tuple[Whole, dict[str, torch.Tensor]]:
    """(a network of AutoFormer in plain torch with the weights of the exact score; these weights)."""
    given: dict[str, Any] = to_values(space, column)
    dim = int(given["embed_dim"])
    weights = shared_weights(space, 0, "normal").of(lower(space, column).network)
    with torch.device("meta"):
        layers = [
            (
                Attention(dim, given["heads"][i], HEAD_DIM, True, fused=True),
                Ffn(dim, int(dim * given["mlp_ratio"][i]), True),
            )
            for i in range(given["depth"])
        ]
        module = Whole(PatchStem(224, 16, 3, dim), layers, ClassifierHead(dim, 1000))
    module = loaded(module, {name: each.numpy().copy() for name, each in weights.items()})
    return module, weights


def plain_terms(module: Whole, weights: Mapping[str, torch.Tensor], dtype: torch.dtype) -> dict[str, float]:
    """Diversity and saliency as anyone would write them: absolute weights, one pass, singular values of every matrix."""
    module = module.to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.abs_()
    module(torch.ones(1, 3, 224, 224, dtype=dtype)).sum().backward()
    diversity = saliency = 0.0
    for name, parameter in module.named_parameters():
        weight, slope = weights[name].to(dtype), parameter.grad
        if name.endswith((".qkv.weight", ".projection.weight")) and "attention" in name:
            for w, g in zip(*(each.chunk(3 if "qkv" in name else 1) for each in (weight, slope)), strict=True):
                diversity += float(torch.linalg.svdvals(w).sum() * torch.linalg.svdvals(g).sum())
        elif name.endswith((".up.weight", ".down.weight")):
            saliency += float((weight * slope).abs().sum())
    return {"diversity": diversity, "saliency": saliency}


def speed(run: Run) -> dict[str, Any]:
    """The same networks by a plain implementation, exactly, and by the shortcut: processor time, equality, Kendall's tau."""
    space = registry.get("space", SPACE)
    few, many = (2, 8) if run.tiny else (24, 1000)
    timed, more = sample(SPACE, few, SEED).population, sample(SPACE, many, SEED + 1).population
    exact, fast = (_proxy(name) for name in ("dss-plus-plus", PROXY))
    torch.set_num_threads(1)
    NetworkScores(exact, space).measured(sample(SPACE, 1, SEED + 2).population)  # weights are drawn once
    rows = []
    with run.progress("one network at a time") as tick:
        for at, column in enumerate(timed.T):
            rows.append(_one_network(space, exact, column))
            tick(at + 1, few)
    shortcut = fast.shortcut(space)
    shortcut(more[:, : min(POPULATION, many)])
    with run.progress("by two tokens") as tick:
        batches = {size: _batched(shortcut, more, size) for size in sorted({POPULATION, many})}
        judged = more[:, : min(many, 200)]
        both = [
            NetworkScores(exact, space).measured(judged, lambda done: tick(done, judged.shape[1])),
            shortcut(judged),
        ]
    return {
        "networks": rows,
        "fast_ms": {str(size): ms for size, ms in batches.items()},
        "tau": _tau(exact, *both),
        "tau_on": judged.shape[1],
        "threads": 1,
    }


def _proxy(name: str) -> SynapticProxy:
    part: SynapticProxy = registry.get("proxy", name)
    return part


def _one_network(space: Space, exact: SynapticProxy, column: np.ndarray) -> dict[str, float]:
    """Seconds of processor time of both, and how far the exact terms are from those of the plain code in float64."""
    module, weights = plain_module(space, column)
    started = time.process_time()
    plain_terms(module, weights, torch.float32)
    plain_seconds = time.process_time() - started
    started = time.process_time()
    (found,) = NetworkScores(exact, space).measured(column[:, None])
    exact_seconds = time.process_time() - started
    return {"plain_s": plain_seconds, "exact_s": exact_seconds, "error": _error(space, column, found)}


def _error(space: Space, column: np.ndarray, found: Any) -> float:
    """How far terms are from those of the plain code in float64, the worse of both."""
    assert isinstance(found, Measured), found
    truth = plain_terms(*plain_module(space, column), torch.float64)
    return max(abs(found.terms[name] / truth[name] - 1) for name in truth)


def equality(run: Run) -> dict[str, Any]:
    """Exact terms beside plain ones in float64; no time is taken, so it may run on a busy machine and anew."""
    space, exact = registry.get("space", SPACE), _proxy("dss-plus-plus")
    columns = list(sample(SPACE, 2 if run.tiny else 24, SEED).population.T)
    errors = []
    with run.progress("exact and plain") as tick:
        for column in columns:
            (found,) = NetworkScores(exact, space).measured(column[:, None])
            errors.append(_error(space, column, found))
            tick(len(errors), len(columns))
    return {"errors": errors, "version": exact.version}


def _batched(shortcut: Callable[..., Any], population: np.ndarray, size: int) -> float:
    """Milliseconds of processor time per network, so many at a time."""
    started = time.process_time()
    for at in range(0, population.shape[1], size):
        shortcut(population[:, at : at + size])
    milliseconds: float = 1e3 * (time.process_time() - started) / population.shape[1]
    return milliseconds


def _tau(exact: SynapticProxy, one: Any, other: Any) -> float:
    scores = NetworkScores(exact, registry.get("space", SPACE))
    tau: float = kendalltau(*(scores.combined(each).values for each in (one, other))).statistic
    return tau


def predictor(run: Run) -> dict[str, Any]:
    """This machine's table and calibrated sum of the space, where the workspace lacks them."""
    target, space = Target.of(workspace=run.workspace), registry.get("space", SPACE)
    try:
        models.choose(space, "min", target)
    except HwbenchError:
        scale = accuracy.TINY if run.tiny else accuracy.FULL
        with run.progress("blocks") as tick:
            hwbench.profile(SPACE, workspace=run.workspace, policy=scale.block_policy, tick=tick)
        with run.progress("networks") as tick:
            hwbench.fit(
                SPACE, workspace=run.workspace, predictor="calibrated_sum", networks=4 if run.tiny else 16,
                holdout=4 if run.tiny else 20, policy=scale.network_policy, tick=tick,
            )  # fmt: skip
    facts = models.choose(space, "min", target).latency.facts.document()
    return dict(facts)


def searched(run: Run, stage: str, strategy: str) -> dict[str, Any]:
    """A whole search in a process of its own, from nothing to its result; the memory of all its processes together."""
    cold = _cold(run, stage)
    folder = run.out / stage
    shutil.rmtree(folder, ignore_errors=True)
    evaluations = 60 if run.tiny else GENERATIONS * POPULATION
    seen = watched(
        "-m", "hwbench", "search", "--space", SPACE, "--budget", f"{run.options.budget:g}x", "--proxy", PROXY, "--strategy",
        strategy, "--evaluations", str(evaluations), "--seed", str(run.options.seed), "--workers", str(run.options.workers),
        "--workspace", str(cold), "--out", str(folder),
    )  # fmt: skip
    found = read_json(folder / "search.json", "search result")["search"]
    return {
        **seen,
        "strategy": strategy,
        **{name: found[name] for name in ("evaluated", "feasible", "notes", "budget_ms")},
        "search_seconds": found["seconds"],
        "winner": found["finalists"][0],
    }


def _cold(run: Run, stage: str) -> Path:
    """The workspace without any score."""
    place = Path(run.out / "cold" / stage)
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(run.workspace, place, ignore=shutil.ignore_patterns("scores"))
    return place


def measured(run: Run) -> dict[str, Any]:
    """The winners of all three, measured end to end."""
    found = {}
    for stage in SEARCHES:
        run.result(stage)
        policy = accuracy.TINY.network_policy if run.tiny else accuracy.FULL.network_policy
        with run.progress(stage) as tick:
            summary = hwbench.verify(run.out / stage, random=0, workspace=run.out / "cold" / stage, policy=policy, tick=tick)
        networks = SearchResult.read(run.out / stage).networks
        (column,) = networks.population[:, :1].T
        sizes = {name: hwbench.score(SPACE, networks, name)["proxies"][name]["scores"][0] for name in ("params", "flops")}
        winner = {name: summary["winner"][name] for name in ("latency_min_ms", "min_spread", "predicted_ms")}
        found[stage] = {**winner, **sizes, "kept": summary["kept"]["winner"], "architecture": to_values(networks.space, column)}
    return found


def report(results: Results, options: Mapping[str, Any]) -> str:
    """Speed, searches, winners."""
    parts = []
    if told := results.get("speed"):
        parts += [markdown.heading("The score", 2), *_speed_said(told)]
    if told := results.get("equality"):
        parts.append(
            f"The exact score as it is now (version {told['version']}) differs from the plain code in float64 by at most "
            f"{max(told['errors']):.1e} on {len(told['errors'])} networks."
        )
    if any(stage in results for stage in SEARCHES):
        parts += [markdown.heading("The search", 2), *_search_said(results, options)]
    return markdown.document(*parts)


def _speed_said(told: Mapping[str, Any]) -> list[str]:
    plain, exact = (np.array([row[name] for row in told["networks"]]) for name in ("plain_s", "exact_s"))
    rows = [
        ["plain, one network at a time", f"{np.median(plain):.3f}", f"{plain.min():.3f}", f"{plain.max():.3f}"],
        ["exact", f"{np.median(exact):.3f}", f"{exact.min():.3f}", f"{exact.max():.3f}"],
    ]
    rows += [[f"two tokens, {size} at a time", f"{ms / 1e3:.5f}", "", ""] for size, ms in told["fast_ms"].items()]
    worst = max(row["error"] for row in told["networks"])
    return [
        f"Processor time per network of {SPACE}, one thread, {len(plain)} networks in turns in one process.",
        markdown.table(["score", "median s", "least s", "most s"], rows),
        f"Plain over exact: {np.median(plain / exact):.1f} times (median of the ratios). The public code was seen to take "
        f"{REFERENCE_SECONDS} s on another machine. Exact terms differ from plain ones in float64 by at most {worst:.1e}. "
        f"Kendall's tau of the shortcut's scores to the exact ones on {told['tau_on']} networks: {told['tau']:.4f}.",
    ]


def _search_said(results: Results, options: Mapping[str, Any]) -> list[str]:
    rows, notes = [], []
    for stage in SEARCHES:
        if (found := results.get(stage)) is None:
            continue
        winner, at = found["winner"], results.get("measured", {}).get(stage)
        rows.append([
            found["strategy"], found["evaluated"], f"{found['seconds']:.1f}", f"{found['peak_memory_mb']:.0f}",
            f"{winner['accuracy']:.2f}", f"{winner['latency_ms']:.2f}", f"{at['latency_min_ms']:.2f}" if at else "",
            ("yes" if at["kept"] else "no") if at else "", f"{at['params']:.2f}" if at else "",
        ])  # fmt: skip
        notes += [note for note in found["notes"] if note not in notes]
    first = next(results[stage] for stage in SEARCHES if stage in results)
    head = ["strategy", "scores", "seconds", "memory MB", "DSS++", "predicted ms", "measured ms", "budget kept", "params M"]
    said = (
        f"Budget {first['budget_ms']:.2f} ms ({options['budget']:g} of the largest network's), certified by upper bounds; "
        f"{options['workers']} processes. Seconds and memory are of the whole command, with start-up, the shortcut's check of "
        "itself and everything written; memory is the sum over its processes. The score is no accuracy: networks were never "
        "trained. DSS++ is ranked among the same sample of the space in all three."
    )
    days = f"T-Razor's own search is published with {PUBLISHED_GPU_DAYS} GPU days ({PUBLISHED_GPU_DAYS * 86_400:.0f} s)."
    return [said, markdown.table(head, rows), days, markdown.bullets(notes)]


STUDY = Study(
    "t_razor_search",
    __doc__,
    "about 10 minutes, half an hour where the workspace has no table of the space yet",
    {
        "speed": speed,
        "equality": equality,
        "predictor": predictor,
        **{stage: partial(searched, stage=stage, strategy=strategy) for stage, strategy in SEARCHES.items()},
        "measured": measured,
    },
    report,
    (
        WORKSPACE,
        Option("budget", 0.8, "share of the largest network's latency"),
        Option("seed", 0, "of the searches"),
        Option("workers", 2, "processes that score"),
    ),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
