"""How long stored files take to read, beside an older commit: everything is checked since, and may be at most 10 % slower.

Both versions read the same files of tests/assets/workspace-0.1 (and the journal once more as this version writes it, with a
checksum in every line), in processes of their own, taking turns. A ratio is that of the two best times in one turn; shown is
the median over turns.

    HWBENCH_BEFORE=7b4c952 python -m pytest benchmarks/test_reader_speed.py --benchmark-only -s
"""

from __future__ import annotations

import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BEFORE = os.environ.get("HWBENCH_BEFORE", "7b4c952")
TURNS, TIMES = 9, 7
DEVICE = "amd-epyc-25-17-1-2c"
READ = """
import json, sys, time
from pathlib import Path
import pyarrow.parquet
from hwbench.core import jsonl, schema
from hwbench.lut.journal import Journal
from hwbench.lut.networks import read_networks
from hwbench.lut.table import Lut
from hwbench.optimize.result import SearchResult
from hwbench.predictor import card
from hwbench.space import architectures

here, device, times = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
table, fitted = here / "luts" / device, next((here / "predictors" / device).iterdir())
found = here / "searches" / "verified"
reads = {
    "journal": lambda: list(Journal(table / "long.samples.jsonl").matching()),
    "journal, written anew": lambda: list(Journal(table / f"{sys.argv[4]}.samples.jsonl").matching()),
    "log of a search": lambda: list(jsonl.read(found / "trials.jsonl", "batch", dict)),
    "lookup table": lambda: Lut.read(table / "onnxruntime.parquet"),
    "table of networks": lambda: read_networks(table / "onnxruntime.networks.parquet"),
    "somebody's table": lambda: schema.read_table(found / "trials.parquet"),
    "card with arrays": lambda: card.read_arrays(fitted, card.read(fitted)),
    "search result": lambda: SearchResult.read(found),
    "architecture file": lambda: architectures.read(here / "sampled.json"),
}
best = {}
for name, read in reads.items():
    read()
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        read()
        taken.append(time.perf_counter() - began)
    best[name] = min(taken)
print(json.dumps(best))
"""
WRITE = """
import sys
from pathlib import Path
from hwbench.core import jsonl
source, target = map(Path, sys.argv[1:])
with jsonl.appending(target) as append:
    for entry in jsonl.read(source, "sample", dict):
        append(entry)
"""
COPIES = 20
"""Of the journal's lines: as long as one of a few thousand samples."""


def python(code: str, package: Path, *arguments: object) -> str:
    env = {**os.environ, "PYTHONPATH": str(package)}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> Path:
    """The package as it was."""
    archive = subprocess.run(["git", "archive", BEFORE, "hwbench"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"commit {BEFORE} is not in this clone")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> Path:
    """A workspace with a long journal, plain and as this version writes it."""
    root = Path(shutil.copytree(ROOT / "tests" / "assets" / "workspace-0.1", tmp_path_factory.mktemp("stored") / "workspace"))
    table = root / "luts" / DEVICE
    (table / "long.samples.jsonl").write_bytes((table / "onnxruntime.samples.jsonl").read_bytes() * COPIES)
    python(WRITE, ROOT, table / "long.samples.jsonl", table / "summed.samples.jsonl")
    return root


def test_reading_is_no_slower_than_it_was(benchmark, before, stored):
    turns = []

    def take_turns() -> None:
        for _ in range(TURNS):
            old = json.loads(python(READ, before, stored, DEVICE, TIMES, "long"))
            new = json.loads(python(READ, ROOT, stored, DEVICE, TIMES, "summed"))
            turns.append((old, new))

    benchmark.pedantic(take_turns, rounds=1)
    print()
    for name in turns[0][0]:
        ratio = statistics.median(new[name] / old[name] for old, new in turns)
        now = 1e3 * statistics.median(new[name] for _, new in turns)
        benchmark.extra_info[f"{name} ratio"] = round(ratio, 3)
        print(f"{name:24} {now:9.3f} ms  {ratio:.2f} of what it took at {BEFORE}")
