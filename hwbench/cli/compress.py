"""hwbench compress."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hwbench.cli import _console as console
from hwbench.cli import _options as options


def run(
    model: Annotated[Path, typer.Option("--model", help="Folder with config.json, model.safetensors and tokenizer.")],
    train: Annotated[Path, typer.Option("--train", help="TSV to learn from: sentence (or sentence1, sentence2), label.")],
    dev: Annotated[Path, typer.Option("--dev", help="TSV by which subnets are chosen.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of this job; run again to go on.")],
    test: Annotated[Path | None, typer.Option("--test", help="TSV that decides nothing; accuracies on it are told.")] = None,
    budget: Annotated[
        str | None, typer.Option("--budget", help="0.5x: times the latency predicted of the whole encoder.")
    ] = None,
    budget_ms: Annotated[float | None, typer.Option("--budget-ms", help="Or the budget in milliseconds.")] = None,
    device: options.Device = "local",
    threads: options.Threads = 1,
    workspace: options.Workspace = options.HERE,
    method: Annotated[
        str, typer.Option("--method", help="supernet: all subnets learn together; netadapt: one is cut step by step.")
    ] = "supernet",
    tokens: Annotated[
        int | None,
        typer.Option("--tokens", help="Length of the text whose latency counts; by default nine of ten dev sentences fit."),
    ] = None,
    importance: Annotated[str, typer.Option("--importance", help="movement, l1 or none.")] = "movement",
    space_cost: Annotated[str, typer.Option("--space-cost", help="latency_ms or macs_m: what the space is a range of.")] = (
        "latency_ms"
    ),
    configurations: Annotated[int, typer.Option("--configurations", help="Subnets that the space is made of.")] = 5,
    rule: Annotated[
        str, typer.Option("--rule", help="Which subnets learn in a step: sandwich, single-path, progressive-shrinking.")
    ] = "sandwich",
    teacher: Annotated[
        str, typer.Option("--teacher", help="Whose answers subnets learn from: fixed (the fine-tuned encoder) or in-place.")
    ] = "fixed",
    epochs: Annotated[int, typer.Option("--epochs", help="Of fine-tuning the whole encoder.")] = 3,
    supernet_epochs: Annotated[int, typer.Option("--supernet-epochs", help="Of training subnets.")] = 4,
    tune_epochs: Annotated[int, typer.Option("--tune-epochs", help="In which each subnet found learns on alone.")] = 0,
    short_steps: Annotated[
        int, typer.Option("--short-steps", help="Of training in which --method netadapt tries each cut.")
    ] = 20,
    strategy: Annotated[
        str | None, typer.Option("--strategy", help="hwbench list strategies; nsga2 is the paper's, by default gp-ehvi.")
    ] = None,
    evaluations: Annotated[int, typer.Option("--evaluations", help="Subnets judged on dev.")] = 200,
    subnets: Annotated[
        int, typer.Option("--subnets", help="Subnets exported and measured: the best, and others of the front.")
    ] = 5,
    mixed: Annotated[
        float | None,
        typer.Option("--mixed", help="A third form of each: blocks in int8 that lose at most so many points on dev."),
    ] = None,
    seed: options.Seed = 0,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    """Cut a BERT-family encoder of yours to a latency budget: train once, search, export and measure subnets."""
    import hwbench
    from hwbench.study.compress import Effort

    effort = Effort(
        epochs=epochs, supernet_epochs=supernet_epochs, evaluations=evaluations, subnets=subnets, tune_epochs=tune_epochs,
        short_steps=short_steps,
    )  # fmt: skip
    with console.progress("compressing"):
        done = hwbench.compress(
            model, train, dev, out, test, budget, budget_ms, device, threads, workspace, tokens, importance, space_cost,
            configurations, rule, teacher, strategy, seed, effort, method, mixed,
        )  # fmt: skip
    if json:
        console.emit_json(done)
        return
    _show(done, out, wide)


def _show(done: dict[str, Any], out: Path, wide: bool) -> None:
    """The table of the report."""
    from hwbench.study import compress_report as report

    console.table(f"Within {report.budget_of(done)}", report.rows(done), report.COLUMNS, wide)
    for note in done["notes"]:
        typer.echo(f"note: {note}")
    console.say_written([out / "compress.json", out / report.PAGE])
