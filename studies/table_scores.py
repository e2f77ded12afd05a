"""Training-free scores of whole benchmark tables, as published with them or computed here; for studies of sampling."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from hwbench.accuracy import public_table
from hwbench.accuracy.benchmark.base import proxy_table, require
from hwbench.accuracy.score import score
from hwbench.core import registry
from hwbench.space.activity import canonical, valid
from hwbench.space.architectures import Architectures
from studies.harness import Run

Scores = np.ndarray
"""float[n], the higher the better; or float[terms, n], whose ranks within a sample are added."""
COMPUTED = ("params", "flops", "dss", "dss-plus-plus")
PUBLISHED = {
    "nasbench-bert": ("synaptic_diversity", "synaptic_saliency", "head_confidence", "lpzero"),
    "vitbench-autoformer": (),
    "vitbench-pit": (),
}
"""Table whose networks hwbench can build -> published scores that are looked at."""
CHEAP = ("params", "flops")
"""What is computed of tables of thousands."""
TERMS = ("diversity", "saliency")
PTB = "nasbench_nlp/ptb_proxies.parquet"
PTB_SCORES = ("activation_distance", "synaptic_saliency", "jacobian_covariance", "jacobian_cosine", "hidden_synaptic_saliency")
TINY = 30


def scored(run: Run, table: str) -> tuple[np.ndarray, Mapping[str, Scores]]:
    """(accuracies, name of a score -> its values) of every network of a table that has both."""
    if table in PUBLISHED:
        return _built(run, table)
    if table == "nasbench-nlp":
        return _penn_treebank(run)
    rows = registry.get("benchmark", table).read(run.tables)
    space = registry.get("space", rows.space)
    mine = np.flatnonzero(~np.isnan(rows.accuracy) & valid(space, rows.genes.T))
    once = (rows.genes[mine] == canonical(space, rows.genes[mine].T).T).all(axis=1)  # of cells that are the same network, one
    mine = mine[once][: TINY if run.tiny else None]
    population = np.ascontiguousarray(rows.genes[mine].T)
    return rows.accuracy[mine], {name: registry.get("proxy", name).compile(space)(population) for name in CHEAP}


def _built(run: Run, table: str) -> tuple[np.ndarray, Mapping[str, Scores]]:
    """With the scores that need the networks themselves."""
    known, rows = proxy_table(table, run.tables), registry.get("benchmark", table).read(run.tables)
    truth = rows.at(np.ascontiguousarray(known.population.T), rows.accuracy)
    mine = np.flatnonzero(~np.isnan(truth))[: TINY if run.tiny else None]
    names = CHEAP if run.tiny or PUBLISHED[table] else COMPUTED
    with run.progress(f"scoring {table}") as tick:
        told = score(None, Architectures(known.space, known.population[:, mine]), names, run.workspace, tick=tick)["proxies"]
    scores: dict[str, Scores] = {name: known.published[name][mine] for name in PUBLISHED[table]}
    for name, found in told.items():
        terms = found.get("terms")
        added = name == "dss-plus-plus" and terms is not None
        scores[name] = np.array([[each[term] for each in terms] for term in TERMS] if added else found["scores"], float)
    return truth[mine], scores


def _penn_treebank(run: Run) -> tuple[np.ndarray, Mapping[str, Scores]]:
    """Cells trained on Penn Treebank, of which no recipe is known: published scores alone. Accuracy is 1,000 / perplexity."""
    (path,) = require(run.tables, PTB)
    data = public_table.read(path, ("loss", *(f"proxy_{name}" for name in PTB_SCORES)), ())
    mine = slice(0, TINY if run.tiny else None)
    scores = {name: data.numbers(f"proxy_{name}")[mine] for name in PTB_SCORES}
    return 1000 * np.exp(-data.numbers("loss")[mine]), scores
