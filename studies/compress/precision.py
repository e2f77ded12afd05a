"""int8, honestly: what sums of int8 rows are worth, what borders cost, and a number format per block, chosen and searched."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.accuracy.supernet.bert.cutting import subnet
from hwbench.accuracy.supernet.bert.encoder import ElasticEncoder
from hwbench.accuracy.supernet.bert.onnx_model import nodes_by_block, write_onnx
from hwbench.network.spec import Setting
from hwbench.optimize.cost import latency_cost
from hwbench.optimize.cost_kind import LATENCY
from hwbench.optimize.search import search
from hwbench.predictor.models import choose
from hwbench.profiler.networks import NETWORK_POLICY, measure_networks
from hwbench.space.activity import sample
from hwbench.space.architectures import Architectures
from hwbench.space.encoder import PRECISIONS, EncoderSpace, Widths
from hwbench.space.lowering import lower
from hwbench.space.values import from_values
from hwbench.study import mixed_precision as mixed
from hwbench.study.encoder_costs import STATISTIC, grid_of
from studies.compress import material, table
from studies.harness import Run
from studies.options import BRIEF

UNSEEN, SEED = 40, 1717
MIXTURES = 24
"""Networks of both formats that tell what borders cost."""
SHARES = (0.25, 0.5, 0.75)
"""Of the way from all in fp32 to all in int8, in latency: where the formats of blocks are chosen."""
SEARCHED = 30


def additivity(run: Run) -> dict[str, Any]:
    """40 unseen networks in int8 and 24 of both formats, measured, beside the sums of their rows. Measures: wants quiet."""
    known = material.material(run)
    grid = grid_of(known.given.config, len(known.given.classes), known.tokens)
    policy = BRIEF if run.tiny else NETWORK_POLICY
    found: dict[str, Any] = {}
    for setting in (table.INT8, Setting()):
        mine = table.pricing(run, setting)
        mine.profile(grid)
        mine.fit(grid)
        drawn = Architectures(grid, sample(grid, 4 if run.tiny else UNSEEN, np.random.default_rng(SEED)))
        with run.progress(f"unseen networks in {setting.dtype}") as tick:
            rows = measure_networks([drawn], mine.target, policy, tick)
        truth = np.array([rows[key]["latency_min_ms"] for key in drawn.keys])
        fitted = latency_cost(choose(grid, STATISTIC, mine.target).latency, grid, LATENCY)
        found[setting.dtype] = {
            "measured_ms": truth.tolist(),
            "rows_ms": mine.row_ms(grid)(drawn.population).tolist(),
            "predicted_ms": fitted.value(drawn.population).tolist(),
            "upper_ms": fitted.upper(drawn.population).tolist(),
        }
    found["mixed"] = borders(run, mixed.mixed_space(grid.sizes, known.given.config.widths), policy)
    return found


def borders(run: Run, space: EncoderSpace, policy: Any) -> dict[str, Any]:
    """Networks of both formats: as many blocks in int8 in a row as in turns, and random ones."""
    mine = table.pricing(run)
    mine.profile(space)
    blocks = sum(gene.name in PRECISIONS for gene in space.genes)
    patterns = [np.arange(blocks) < n for n in (0, blocks // 2, blocks)]
    patterns += [np.arange(blocks) >= blocks // 2, np.arange(blocks) % 2 == 0, np.arange(blocks) % 2 == 1]
    rng = np.random.default_rng(SEED)
    patterns += [rng.random(blocks) < 0.5 for _ in range((6 if run.tiny else MIXTURES) - len(patterns))]
    columns = [of_pattern(space, each) for each in patterns]
    drawn = Architectures(space, np.unique(np.stack(columns, axis=1), axis=1))
    with run.progress("networks of both formats") as tick:
        rows = measure_networks([drawn], mine.target, policy, tick)
    truth = np.array([rows[key]["latency_min_ms"] for key in drawn.keys])
    sums = mixed.row_sum(space, mine)(drawn.population)
    return {
        "measured_ms": truth.tolist(), "rows_ms": sums.tolist(), "borders": [changes(space, c) for c in drawn.population.T],
        "int8": [len(mixed.in_int8(space, c)) for c in drawn.population.T],
    }  # fmt: skip


def of_pattern(space: EncoderSpace, pattern: np.ndarray) -> np.ndarray:
    """The architecture whose blocks, in the order they run, are in int8 where the pattern says so."""
    formats = {name: ["int8" if on else "fp32" for on in pattern[i::2]] for i, name in enumerate(PRECISIONS)}
    widths = Widths(*(tuple(int(g.choices[0]) for g in space.genes if g.name == name) for name in ("heads", "hidden")))
    return space.column_of(widths, formats)


def changes(space: EncoderSpace, column: np.ndarray) -> int:
    """How often the format changes from one block to the next, what is around them being fp32."""
    blocks = [s.dtype for s in lower(space, column).network.specs if s.dtype is not None]
    told = ["fp32", *blocks, "fp32"]
    return sum(one != other for one, other in itertools.pairwise(told))


def networks(run: Run) -> dict[str, ElasticEncoder]:
    """The whole encoder and our winner."""
    net, _ = table.supernet(run)
    winner = subnet(net, run.result("ours")["subnets"][0]["architecture"]).plain()
    return {"full": material.teacher(run, table.SEED).net, "ours": winner}


def sensitivity(run: Run) -> dict[str, Any]:
    """What int8 costs each block alone, on dev, of the whole encoder and of our winner."""
    known = material.material(run)
    found: dict[str, Any] = {}
    for name, net in networks(run).items():
        path = material.place(run, f"mixed-{name}") / "fp32.onnx"
        write_onnx(net, path)
        told = mixed.sensitivities(path, nodes_by_block(net), {"train": known.train, "dev": known.dev})
        found[name] = {block: asdict(each) for block, each in told.items()}
    return found


def mixtures(run: Run) -> dict[str, Any]:
    """Formats chosen by an integer program at three latencies, and by a search; each written and judged on dev."""
    known = material.material(run)
    found: dict[str, Any] = {}
    for name, net in networks(run).items():
        folder = material.place(run, f"mixed-{name}")
        blocks, told = nodes_by_block(net), run.result("sensitivity")[name]
        grid = grid_of(known.given.config, len(known.given.classes), known.tokens)
        space = mixed.mixed_space(grid.sizes, net.widths)
        mine = table.pricing(run)
        mine.profile(space)
        latency = mixed.row_sum(space, mine)
        ends = [float(latency(of_pattern(space, np.full(2 * net.widths.depth, on))[:, None])[0]) for on in (False, True)]
        losses = {block: told[block]["loss"] - told["fp32"]["loss"] for block in blocks}
        found[name] = {"fp32_ms": ends[0], "int8_ms": ends[1], "chosen": [], "searched": []}
        wanted = {"all": list(blocks)}
        for share in SHARES:
            column, loss = mixed.choose(space, latency, losses, mixed.LOSS, ends[0] + share * (ends[1] - ends[0]))
            if column is not None:
                wanted[f"exact-{share}"] = mixed.in_int8(space, column)
                found[name]["chosen"].append({"share": share, "loss_expected": told["fp32"]["loss"] + loss})
        for label, chosen in wanted.items():
            path = folder / f"{label}.onnx"
            mixed.write(folder / "fp32.onnx", blocks, chosen, path, known.train)
            facts = {"int8": chosen, **asdict(mixed.judged(path, known.dev))}
            found[name][label] = {**facts, "rows_ms": float(latency(of_blocks(space, chosen)[:, None])[0])}
        found[name]["searched"] = searched(run, name, space, net, blocks)
    return found


def of_blocks(space: EncoderSpace, chosen: Sequence[str]) -> np.ndarray:
    """The architecture with these blocks in int8."""
    depth = max(gene.layer for gene in space.genes if gene.layer is not None) + 1
    order = [f"layer{i}.{kind}" for i in range(depth) for kind in mixed.KINDS.values()]
    return of_pattern(space, np.array([block in chosen for block in order]))


def searched(
    run: Run, name: str, space: EncoderSpace, net: ElasticEncoder, blocks: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """The front that a search over the formats finds, each judged as a model."""
    known, folder = material.material(run), material.place(run, f"mixed-{name}")
    mine = table.pricing(run)
    mine.fit(space)
    path = folder / "asked.onnx"

    def accuracy(architecture: Mapping[str, Any]) -> float:
        chosen = mixed.in_int8(space, from_values(space, architecture))
        mixed.write(folder / "fp32.onnx", blocks, chosen, path, known.train)
        return mixed.judged(path, known.dev).accuracy

    whole = of_pattern(space, np.full(2 * net.widths.depth, False))[:, None]
    most = float(latency_cost(choose(space, STATISTIC, mine.target).latency, space, LATENCY).upper(whole)[0])
    with run.progress(f"searching formats, {name}") as tick:
        document = search(
            space, most, folder / "search", objective="pareto", statistic=STATISTIC, strategy="nsga2", seed=0,
            evaluations=6 if run.tiny else SEARCHED, workspace=run.workspace, accuracy=accuracy, tick=tick,
        )  # fmt: skip
    told = zip(document["architectures"], document["search"]["finalists"], strict=True)
    return [{"int8": mixed.in_int8(space, from_values(space, each)), **facts} for each, facts in told]


def mixed_latencies(run: Run) -> dict[str, Any]:
    """All mixtures beside all in fp32, measured. Measures: wants quiet."""
    found: dict[str, Any] = {}
    for name in run.result("mixed"):
        folder = material.place(run, f"mixed-{name}")
        files: list[Path] = [folder / "fp32.onnx", *sorted(folder.glob("exact-*.onnx")), folder / "all.onnx"]
        with run.progress(f"measuring mixtures of {name}"):
            told = table.interleaved(run, files)
        found[name] = {path.stem: each for path, each in zip(files, told, strict=True)}
    return found


STAGES = {
    "additivity": additivity, "sensitivity": sensitivity, "mixed": mixtures, "mixed-latencies": mixed_latencies,
}  # fmt: skip
