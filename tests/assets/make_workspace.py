"""Writes a workspace with one of everything, and what its users are answered: the origin of workspace-0.1.

    git worktree add OLD <commit> && cd OLD
    PYTHONPATH=. python tests/assets/make_workspace.py ELSEWHERE/workspace-X.Y      about 3 minutes

Run once per version whose files must open for ever; never run again to mend a test: what an old version wrote is a fact.
It uses the command line only, so that it runs unchanged on later versions. Beside the workspace it writes
workspace-X.Y-golden/: answers.json, what that version answered when asked about this workspace, and trials.jsonl, the log of
the half-done search had it not been killed.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SPACE = "autoformer-tiny"
NETWORKS = 8
"""Networks measured to fit, and as many held out."""
SAMPLED = 8
EVALUATIONS = 1000
HALF = range(3, 8)
"""Batches logged when the search is killed, of about ten."""
ATTEMPTS = 50
PLACES = ("folder", "source", "markdown", "html", "figures", "seconds", "fitted_at")
"""What answers say of where and when."""


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "hwbench.cli.main", *map(str, words)]


def run(root: Path, *words: object) -> str:
    """Runs one verb inside the workspace, so that no path of this machine gets into a file; returns its last line."""
    print("hwbench", *words, flush=True)
    done = subprocess.run(command(*words), cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    return (done.stdout.splitlines() or [""])[-1]


def answer(root: Path, *words: object) -> dict[str, Any]:
    """What a verb that answers in JSON is asked and says."""
    return {"words": [str(word) for word in words], "answer": without_places(json.loads(run(root, *words)))}


def without_places(document: Any) -> Any:
    """The document without what differs from run to run: folders and times."""
    if isinstance(document, dict):
        return {key: without_places(value) for key, value in document.items() if key not in PLACES}
    return [without_places(value) for value in document] if isinstance(document, list) else document


def search(device: str, budget_ms: float, out: str, seed: int) -> list[object]:
    where = ["--space", SPACE, "--device", device, "--budget-ms", budget_ms, "--workspace", ".", "--out", out]
    return ["search", *where, "--evaluations", EVALUATIONS, "--seed", seed, "--json"]


def kill_half_way(root: Path, words: list[object], folder: Path) -> None:
    """Starts a search and kills it when about half its batches are logged; tries until that is what happened."""
    log = folder / "trials.jsonl"
    for _ in range(ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        process = subprocess.Popen(command(*words), cwd=root, stdout=subprocess.DEVNULL)
        while process.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") >= HALF[0]):
            time.sleep(0.0002)
        process.kill()
        process.wait()
        if log.read_bytes().count(b"\n") in HALF and not (folder / "search.json").exists():
            return
    raise SystemExit("The search ends too soon to be killed half-way.")


def main() -> None:
    root = Path(sys.argv[1]).resolve()
    golden = root.with_name(f"{root.name}-golden")
    root.mkdir(parents=True)
    golden.mkdir()
    os.environ["COLUMNS"] = "120"

    run(root, "device", "detect", "--workspace", ".")
    (file,) = (root / "devices").glob("*.toml")
    device = file.stem
    run(root, "profile", "--space", SPACE, "--workspace", ".")
    sizes = ["--networks", NETWORKS, "--holdout", NETWORKS]
    run(root, "fit", "--space", SPACE, *sizes, "--workspace", ".")
    run(root, "sample", "--space", SPACE, "--n", SAMPLED, "--seed", 5, "--out", "sampled.json")
    asked = ["predict", "--space", SPACE, "--arch", "sampled.json", "--device", device, "--workspace", ".", "--json"]
    predicted = json.loads(run(root, *asked))["predictions"]
    budget_ms = round(statistics.median(each["latency_ms"] for each in predicted), 1)
    run(root, *search(device, budget_ms, "searches/verified", 0))
    run(root, "verify", "searches/verified", "--random", 4, "--workspace", ".")
    run(root, "report", "searches/verified", "--workspace", ".")
    half = search(device, budget_ms, "searches/half", 1)
    kill_half_way(root, half, root / "searches" / "half")
    for lock in root.rglob("*.lock"):
        lock.unlink()

    scratch = Path(shutil.copytree(root, golden / "scratch"))
    shutil.rmtree(scratch / "searches" / "half")
    table = f"luts/{device}/onnxruntime.parquet"
    answers = {
        "table": answer(scratch, "lut", "show", table, "--json"),
        "table from its journal": answer(scratch, "lut", "show", f"{table}@1", "--json"),
        "history": answer(scratch, "lut", "history", table, "--json"),
        "prediction": answer(scratch, *asked),
        "prediction of p50": answer(scratch, *asked, "--statistic", "p50"),
        "report": answer(scratch, "report", "searches/verified", "--workspace", ".", "--json"),
        "search": answer(scratch, *half),
        "fit": answer(scratch, "fit", "--space", SPACE, "--device", device, *sizes, "--stored", "--workspace", ".", "--json"),
    }
    (golden / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")
    shutil.copy(scratch / "searches" / "half" / "trials.jsonl", golden / "trials.jsonl")
    shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
