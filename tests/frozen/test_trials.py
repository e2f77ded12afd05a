"""Searches of five seeds by five strategies ask the same questions and get the same answers as on record.

tests/assets/trials/searches.json holds, for each, the hash of the genes asked, sums of all values and the winner; and hashes
of whole logs (`trials.jsonl`), once for each set of numeric kernels they were recorded with (`numerics`).

What can be held on any CPU differs by strategy:

- EXACT ones compare values that are sums of table entries, added in a fixed order: no library routine with a kernel per CPU
  is between a seed and a log. They are held everywhere: genes asked to the byte, values to 1e-9. (Seen: with OpenBLAS's
  kernels for SkylakeX, Haswell and Nehalem, and numpy's with and without AVX-512 and AVX2, their logs are equal to the byte.)
- LEARNING ones solve linear systems (Cholesky, least squares). BLAS chooses its kernel by CPU, kernels differ in the last
  bit, and where two candidates look alike that bit decides which is asked; from there on it is another search. So their log
  is held to the byte where it was recorded with the same kernels; elsewhere what was asked before anything was learnt, and a
  winner whose fitness is within LOSS of the recorded one.

Where a change is meant, delete the record and write it again, once per set of kernels; an AVX-512 CPU can do both:

    HWBENCH_RECORD=1 python -m pytest tests/frozen/test_trials.py
    HWBENCH_RECORD=1 OPENBLAS_CORETYPE=Haswell NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL" python -m pytest ...
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  (brings a BLAS of its own, which must be loaded before loaded ones are listed)
import threadpoolctl

import hwbench
from tests.frozen.record import ASSETS, RECORDING, recorded

RECORD = "trials/searches.json"
SPACE, DEVICE, BUDGET_MS = "autoformer-tiny", "amd-epyc-25-1-1-2c", 40.0
"""With the predictor shipped for that device: nothing is measured."""
EXACT = {"evolution": "constrained", "nsga2": "pareto", "local": "constrained"}
LEARNING = {"default": "pareto", "linas-ridge": "pareto"}
OBJECTIVES = {**EXACT, **LEARNING}
EVALUATIONS = 500
SEEDS = range(5)
LOSS = 0.03
"""All recorded winners lie within 2 % of each other, and other kernels moved one by 0.8 %."""


@functools.cache
def numerics() -> dict[str, Any]:
    """What decides the last bit: the kernels that BLAS and numpy run on this CPU."""
    blas = [{k: each.get(k) for k in ("internal_api", "version", "architecture")} for each in threadpoolctl.threadpool_info()]
    loaded = sorted({json.dumps(each, sort_keys=True) for each in blas if each["internal_api"] == "openblas"})
    simd = np.show_config(mode="dicts")["SIMD Extensions"]
    return {"numpy": np.__version__, "simd": sorted(simd.get("found", [])), "blas": [json.loads(each) for each in loaded]}


def searched(strategy: str, seed: int, root: Path) -> dict[str, Any]:
    """Runs one search and says what is held of it."""
    out = root / "search"
    found = hwbench.search(
        SPACE, BUDGET_MS, out, device=DEVICE, workspace=root,
        strategy=strategy, objective=OBJECTIVES[strategy], evaluations=EVALUATIONS, seed=seed,
    )  # fmt: skip
    log = re.sub(rb',"sum":"[0-9a-f]{8}"}', b"}", (out / "trials.jsonl").read_bytes())  # recorded when lines had no checksum
    batches = [json.loads(line) for line in log.splitlines()]
    asked = [batch["genes"] for batch in batches]
    columns = [name for name in batches[0] if name != "genes"]
    return {
        "log_sha256": hashlib.sha256(log).hexdigest(),
        "genes_sha256": hashlib.sha256("\n".join(asked).encode()).hexdigest(),
        "first_sha256": hashlib.sha256(asked[0].encode()).hexdigest(),
        "batches": len(batches),
        "sums": {name: math.fsum(value for batch in batches for value in batch[name]) for name in columns},
        "winner": {"architecture": found["architectures"][0], **found["search"]["finalists"][0]},
    }


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    return {} if RECORDING else recorded(RECORD)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("strategy", OBJECTIVES)
def test_a_search_is_as_recorded(strategy, seed, known, tmp_path):
    name = f"{strategy} {seed}"
    now = searched(strategy, seed, tmp_path)
    log = now.pop("log_sha256")
    if RECORDING:
        write_down(name, now, log)
    before = known["searches"][name]
    logs = [each["log_sha256"][name] for each in known["logs"] if each["numerics"] == numerics()]
    assert [log] * len(logs) == logs
    assert now["first_sha256"] == before["first_sha256"]
    assert now["winner"]["within_budget"]
    assert now["winner"]["fitness"] >= before["winner"]["fitness"] * (1 - LOSS)
    if strategy in EXACT:
        assert (now["genes_sha256"], now["batches"]) == (before["genes_sha256"], before["batches"])
        assert now["sums"] == pytest.approx(before["sums"], rel=1e-9)
        assert now["winner"].pop("architecture") == before["winner"].pop("architecture")
        assert now["winner"] == pytest.approx(before["winner"], rel=1e-9)


def write_down(name: str, now: dict[str, Any], log: str) -> None:
    """Adds a search to the record; what other kernels recorded before of this search stays, and their logs do."""
    path = ASSETS / RECORD
    path.parent.mkdir(exist_ok=True)
    asked = {"space": SPACE, "device": DEVICE, "budget_ms": BUDGET_MS, "evaluations": EVALUATIONS, "objectives": OBJECTIVES}
    before = json.loads(path.read_text()) if path.exists() else {**asked, "logs": [], "searches": {}}
    logs = {json.dumps(each["numerics"]): each for each in before["logs"]}
    mine = logs.setdefault(json.dumps(numerics()), {"numerics": numerics(), "log_sha256": {}})
    mine["log_sha256"][name] = log
    searches = {name: now, **before["searches"]}
    path.write_text(json.dumps({**asked, "logs": list(logs.values()), "searches": searches}, indent=1) + "\n")
    pytest.skip(f"recorded {name}")
