"""Which release of onnxruntime made a model slower, and where: three releases, ten models, the blocks of AutoFormer-tiny.

    python -m studies.releases --models FOLDER --out DIR
    python -m studies.releases --release 1.20.0 --release 1.25.1 --release 1.31.1 --models FOLDER --out DIR

The releases are installed by pip, each into a folder of the cache. Every model runs under all of them in turn, burst by burst,
in the same rounds of fresh processes; its outputs are held against those of the installed onnxruntime. Blocks are rows of
tables that fresh processes of the releases fill in turn. Stages are short, so that they fit into quiet quarters of an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import hwbench
from hwbench.core import markdown
from hwbench.profiler.measure import COMPARE_POLICY
from hwbench.profiler.measured_document import FAILED, OFF
from hwbench.profiler.policy import Policy
from hwbench.study import compare_runtimes
from studies import public_models
from studies.harness import Results, Run, Study
from studies.options import BRIEF, WORKSPACE, Option

RELEASES = ("1.20.0", "1.25.1", "1.31.1")
"""November 2024, one between, and the installed one. Releases before 1.19 do not work with numpy 2."""
MODELS = (
    "mobilenet-v2", "resnet-50", "efficientnet-b0", "deit-small", "swin-tiny", "mobilevit-small", "distilbert", "electra-small",
    "t5-small-encoder", "whisper-tiny-encoder",
)  # fmt: skip
TINY_MODELS = ("levit-128s",)
SPACE = "autoformer-tiny"
SECONDS = 45.0
"""Of a model, beyond what starting it takes."""
KEPT = (
    "runtime", "latency_min_ms", "latency_median_ms", "min_spread", "session_ms", "first_run_ms", "peak_memory_bytes",
    "verdict", OFF, FAILED, "compared_with_first", "compared_with_previous", "kernels_against_first",
)  # fmt: skip
MOST_KERNELS = 3
ROWS = Policy(rounds=4, max_processes=5)


def stages(options: Any) -> Mapping[str, Callable[[Run], Any]]:
    """One a model, and the blocks."""
    models = TINY_MODELS if options.tiny else MODELS
    return {**{f"model {name}": partial(of_model, name) for name in models}, "blocks": of_blocks}


def releases_of(run: Run) -> list[str]:
    """As runtimes are named."""
    versions = run.options.release or list(RELEASES)
    return [f"onnxruntime=={version}" for version in (versions[-2:] if run.tiny else versions)]


def of_model(name: str, run: Run) -> list[dict[str, Any]]:
    """A model: exported where the folder lacks it, then measured under every release in turn."""
    folder = Path(run.options.models or run.out / "models")
    public_models.export(folder, [name])
    policy = replace(BRIEF, min_processes=1, max_processes=4) if run.tiny else replace(COMPARE_POLICY, max_seconds=SECONDS)
    with run.progress(name) as tick:
        found = hwbench.measure(
            folder / f"{name}.onnx", runtime=releases_of(run), workspace=run.workspace, policy=policy, tick=tick
        )
    return [{key: each[key] for key in KEPT if key in each} for each in found]


def of_blocks(run: Run) -> dict[str, Any]:
    """The rows of a space's table under every release, in turn."""
    policy = BRIEF if run.tiny else ROWS
    told = compare_runtimes.compare(runtimes=releases_of(run), workspace=run.workspace, spaces=[SPACE], policy=policy)
    return {name: told[name] for name in ("runtimes", "kinds", "changes", "left_out", "base")}


def report(results: Results, options: Mapping[str, Any]) -> str:
    """A verdict per model and release against the one before, where it lies, then the blocks."""
    rows, where, failed = [], [], []
    for stage, result in results.items():
        if stage == "blocks":
            continue
        name = stage.removeprefix("model ")
        for each in result:
            if FAILED in each:
                failed.append(f"{name}, {each['runtime']}: {each[FAILED]}")
                continue
            rows.append(_row(name, each))
            if against := _where(each):
                where.append(f"{name}, {each['runtime']}: {against}")
    head = ["model", "release", "minimum ms", "against the one before", "since the first", "outputs off", "session ms", "MB"]
    parts = [markdown.table(head, rows, texts=2)] if rows else []
    if where:
        parts += ["Kernels that changed most against the release before, under the profiler:", markdown.bullets(where)]
    if blocks := results.get("blocks"):
        names = list(blocks["runtimes"])
        parts += [
            f"## Blocks of {SPACE}",
            f"Multiples of {blocks['base']} (geometric means); in brackets rows led, and clearly led.",
            markdown.table(
                ["kind of op", "rows", *names],
                [[k["kind"], k["rows"], *(compare_runtimes.cell(k, name) for name in names)] for k in blocks["kinds"]],
            ),
            markdown.bullets(compare_runtimes.change_text(each, most=5) for each in blocks["changes"]),
        ]
        failed += [f"blocks, {runtime}: {why}" for runtime, why in blocks["left_out"].items()]
    if failed:
        parts += ["Not measured:", markdown.bullets(failed)]
    return "\n\n".join(parts)


def _row(name: str, each: Mapping[str, Any]) -> Sequence[str]:
    first = each.get("compared_with_first")
    previous = each.get("compared_with_previous") or first
    off = each.get(OFF)
    numbers = [f"{each['session_ms']:.0f}", f"{each['peak_memory_bytes'] / 1e6:.0f}"]
    return (
        name, each["runtime"].rpartition("=")[2], f"{each['latency_min_ms']:.3f}", _told(previous), _told(first),
        "-" if off is None else f"{off:.1g}", *numbers,
    )  # fmt: skip


def _told(comparison: Mapping[str, Any] | None) -> str:
    if comparison is None:
        return "-"
    high = comparison["high"]
    if high is None:
        return str(comparison["answer"])
    ends = [100 * (ratio - 1) for ratio in (comparison["low"], high)]
    return f"{comparison['answer']} ({ends[0]:+.1f} to {ends[1]:+.1f} %)"


def _where(each: Mapping[str, Any]) -> str:
    changed = [row for row in each.get("kernels_against_first") or [] if row["answer"] != "same"][:MOST_KERNELS]
    return "; ".join(
        f"{row['kernel']} {row['shape']} x {row['other']} {row['other_ms'] - row['first_ms']:+.3g} ms ({row['why']})"
        for row in changed
    )


STUDY = Study(
    "releases",
    __doc__,
    "about 25 minutes of a machine that does nothing else, once models and releases are there (10 minutes more)",
    stages,
    report,
    (
        WORKSPACE,
        Option("models", None, "folder of the exported models; by default in --out", Path, fixed=False),
        Option(
            "release", None, f"a release of onnxruntime; repeat, oldest first (default: {', '.join(RELEASES)})", repeated=True
        ),
    ),
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
