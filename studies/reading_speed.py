"""How fast tables and logs are read: this version beside an older one, in turns, on files that both know.

    python -m studies.reading_speed --out reports/reading-2026-11-19

The older version is taken out of the repository (`--before COMMIT`). Each reading is a process of its own that reads the same
file again and again; compared is the processor time of the fastest round of many, so that what else runs decides little. Newer
logs end each line in a checksum, which costs more to check: they are read by this version alone, with and without.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwbench.core import jsonl, markdown
from hwbench.core.errors import MeasurementError
from studies.harness import Results, Run, Study
from studies.options import Option

ROOT = Path(__file__).parents[1]
OLD = "tests/assets/workspace-0.1"
DEVICE = f"{OLD}/luts/amd-epyc-25-17-1-2c"
CARD = f"{OLD}/predictors/amd-epyc-25-17-1-2c/onnxruntime-fp32-b1-t1-back-to-back"
LARGE = "luts/intel-xeon-6-207-2-2c/onnxruntime"
READ: Mapping[str, tuple[str, str]] = {
    "lookup table": ("Lut.read(Path(file))", f"{LARGE}.parquet"),
    "journal of samples": ("deque(Journal(Path(file)).read(), 0)", f"{LARGE}.samples.jsonl"),
    "log of trials": ("deque(jsonl.read(Path(file), 'batch', dict), 0)", f"{OLD}/searches/verified/trials.jsonl"),
    "search result": ("architectures.read(Path(file))", f"{OLD}/searches/verified/search.json"),
    "predictor": ("card.read_arrays(Path(file), card.read(Path(file)))", CARD),
}
"""What is read: how, and of which file."""
SCRIPT = """
import json, sys, time, warnings
from collections import deque
from pathlib import Path
from hwbench.core import jsonl
from hwbench.lut.journal import Journal
from hwbench.lut.table import Lut
from hwbench.predictor import card
from hwbench.space import architectures
code, file, rounds = compile(sys.argv[1], "reading", "eval"), sys.argv[2], int(sys.argv[3])
taken = []
for _ in range(rounds):
    started = time.process_time()
    eval(code)
    taken.append(time.process_time() - started)
print(json.dumps(1e3 * min(taken)))
"""


def before(run: Run) -> dict[str, Any]:
    """Each kind of file by both versions, in turns."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, run.progress("reading") as tick:
        old = _taken_out(run.options.before, Path(folder))
        for at, (name, (how, file)) in enumerate(READ.items()):
            tick(at, len(READ))
            ratios, mine, theirs = [], [], []
            for turn in range(2 if run.tiny else run.options.turns):
                pair = {which: _milliseconds(which, how, ROOT / file, run) for which in ((old, ROOT), (ROOT, old))[turn % 2]}
                mine.append(pair[ROOT])
                theirs.append(pair[old])
                ratios.append(pair[ROOT] / pair[old])
            found[name] = {
                "before_ms": min(theirs), "now_ms": min(mine), "ratio": statistics.median(ratios), "ratios": sorted(ratios),
            }  # fmt: skip
    return found


def checksums(run: Run) -> dict[str, Any]:
    """A log of this version with its checksums, and the same without."""
    source = ROOT / READ["journal of samples"][1]
    entries = list(jsonl.read(source, "sample", dict))
    with tempfile.TemporaryDirectory() as folder:
        plain, summed = Path(folder) / "plain.jsonl", Path(folder) / "summed.jsonl"
        plain.write_text("".join(json.dumps(each, separators=(",", ":")) + "\n" for each in entries))
        with jsonl.appending(summed) as append:
            for each in entries:
                append(each)
        how = READ["log of trials"][0]
        taken = {path.stem: _milliseconds(ROOT, how, path, run) for path in (plain, summed)}
    return {"lines": len(entries), **taken}


def _taken_out(commit: str, folder: Path) -> Path:
    """The package as it was at a commit."""
    command = ["git", "archive", commit, "hwbench"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise MeasurementError(f"{' '.join(command)} failed: {done.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _milliseconds(version: Path, how: str, file: Path, run: Run) -> float:
    """The fastest of many readings in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(version), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SCRIPT, how, str(file), "2" if run.tiny else str(run.options.rounds)]
    done = subprocess.run(command, cwd=version, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MeasurementError(f"{how} of {file} fails in {version}: {done.stderr[-300:]}")
    return float(done.stdout)


def report(results: Results, options: Mapping[str, Any]) -> str:
    """The figures."""
    parts = []
    if told := results.get("before"):
        rows = [
            [name, f"{row['before_ms']:.2f}", f"{row['now_ms']:.2f}", f"{row['ratio']:.3f}",
             f"{row['ratios'][0]:.3f} to {row['ratios'][-1]:.3f}"]
            for name, row in told.items()
        ]  # fmt: skip
        parts += [
            f"Before is commit {options['before']}. Ratio: the median over {options['turns']} turns of the time now over the "
            "time before, and all of them.",
            markdown.table(["what is read", "before ms", "now ms", "ratio", "of all turns"], rows),
        ]
    if told := results.get("checksums"):
        parts.append(
            f"A log of {told['lines']} lines: {told['plain']:.2f} ms without checksums, {told['summed']:.2f} ms with them."
        )
    return "\n\n".join(parts)


STUDY = Study(
    "reading_speed",
    __doc__,
    "about three minutes of one core",
    {"before": before, "checksums": checksums},
    report,
    (
        Option("before", "7b4c952", "commit of the older version"),
        Option("turns", 10, "how often both are asked"),
        Option("rounds", 30, "readings of a process"),
    ),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
