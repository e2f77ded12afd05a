"""What one may do to a fine-tuned encoder to have it at half its latency, in one table; each exported in fp32 and int8.

Every way begins with the same fine-tuned encoder, and trains as many epochs after it. Ours, L1 and NetAdapt are `hwbench
compress` itself; so is the measuring of rows and of calibrating networks, which lie in the workspace of the run.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import hwbench
from hwbench.accuracy.supernet.bert.cutting import SubnetAccuracy, subnet, tuned
from hwbench.accuracy.supernet.bert.encoder import ElasticEncoder
from hwbench.accuracy.supernet.bert.folder import EncoderConfig
from hwbench.accuracy.supernet.bert.onnx_model import INPUTS, masked_nodes, write_onnx
from hwbench.accuracy.supernet.bert.sentences import Encoded, encoded, read
from hwbench.accuracy.supernet.bert.training import Recipe
from hwbench.core.files import read_json
from hwbench.device.target import Target
from hwbench.network.spec import Setting
from hwbench.optimize.cost import latency_cost
from hwbench.optimize.cost_kind import LATENCY
from hwbench.optimize.search import search
from hwbench.predictor.models import choose
from hwbench.profiler.measure import COMPARE_POLICY, measure
from hwbench.runtime.convert import quantize
from hwbench.space.activity import sample
from hwbench.space.encoder import EncoderSpace
from hwbench.space.values import to_values
from hwbench.study.compress import SPACE, Effort
from hwbench.study.cut_subnets import calibration, logits
from hwbench.study.encoder_costs import STATISTIC, Pricing, grid_of
from studies.compress import material
from studies.harness import Run
from studies.options import BRIEF

SEED, BUDGET, ANY = 0, "0.5x", "1000000x"
SEARCHES = range(3)
DRAWN, RANDOM, NEAR = 4000, 5, 0.05
"""Random subnets looked at, and judged: those whose predicted latency is at most so far below the winner's."""
FORMATS = ("fp32", "int8")
INT8 = Setting(dtype="int8")


def effort(run: Run, **changed: Any) -> Effort:
    """Of `hwbench compress`."""
    quick = {"rows": BRIEF, "networks": BRIEF, "finalists": BRIEF, "short_steps": 1} if run.tiny else {}
    told = {"epochs": run.options.epochs, "supernet_epochs": run.options.supernet_epochs, "subnets": 5}
    return Effort(**{**told, "evaluations": 12 if run.tiny else run.options.evaluations, **quick, **changed})


def share(run: Run, budget: str = BUDGET) -> str:
    """The budget; in a trial run one that every subnet keeps: of a tiny encoder's latency little hangs on its widths."""
    return ANY if run.tiny else budget


def pricing(run: Run, setting: Setting = Setting()) -> Pricing:
    """Measures into the workspace of the run."""
    target = Target.of(setting=setting, workspace=run.workspace)
    return Pricing(target, "local", BRIEF, BRIEF) if run.tiny else Pricing(target, "local")


def rows(run: Run) -> dict[str, Any]:
    """What operators of all widths cost in fp32 and int8, and calibrations of their sum. Measures: wants quiet."""
    known = material.material(run)
    found: dict[str, Any] = {}
    grid = grid_of(known.given.config, len(known.given.classes), known.tokens)
    full = grid.column_of(known.given.config.widths)[:, None]
    for setting in (Setting(), INT8):
        mine = pricing(run, setting)
        with run.progress(f"rows, {setting.dtype}") as tick:
            mine.profile(grid, tick)
        with run.progress(f"calibrating, {setting.dtype}") as tick:
            mine.fit(grid, tick)
        chosen = choose(grid, STATISTIC, mine.target).latency
        facts = chosen.facts.document()
        found[setting.dtype] = {"full_ms": float(latency_cost(chosen, grid, LATENCY).value(full)[0]), **facts}
    return found


def compressed(run: Run, name: str, seed: int = SEED, changed: Mapping[str, Any] | None = None, **how: Any) -> dict[str, Any]:
    """What `hwbench compress` makes, from the fine-tuned encoder of this run."""
    known = material.material(run)
    material.teacher(run, seed)
    folder = material.place(run, name)
    if not (folder / "teacher.safetensors").exists():
        shutil.copyfile(material.place(run, f"teacher-{seed}") / "teacher.safetensors", folder / "teacher.safetensors")
    with run.progress(name):
        return hwbench.compress(
            known.model, known.files["train"], known.files["dev"], folder, budget=share(run), workspace=run.workspace,
            seed=seed, effort=effort(run, **(changed or {})), **how,
        )  # fmt: skip


def ours(run: Run) -> dict[str, Any]:
    """`hwbench compress` at half the latency."""
    return compressed(run, "ours")


def l1(run: Run) -> dict[str, Any]:
    """The same with units in the order of their size."""
    return compressed(run, "l1", importance="l1")


def netadapt(run: Run) -> dict[str, Any]:
    """The same, cut step by step."""
    return compressed(run, "netadapt", method="netadapt")


def every_second(run: Run) -> dict[str, Any]:
    """Every second layer of the fine-tuned encoder, trained as long as the subnets were."""
    net = halved(material.teacher(run, SEED).net)
    job = material.task(run, "every-second", SEED)
    with run.progress("every second layer") as tick:
        teacher = material.teacher(run, SEED).net
        trained = tuned(net, teacher, job, Recipe(run.options.supernet_epochs), "every-second", tick)
    write_onnx(trained, job.folder / "fp32.onnx")
    return {"layers": trained.widths.depth}


def halved(net: ElasticEncoder) -> ElasticEncoder:
    """Layers 0, 2, 4 and so on, with copies of their weights."""
    config, kept = net.config, range(0, len(net.layers), 2)
    smaller = EncoderConfig(**{**config.__dict__, "layers": len(kept)})
    alone = ElasticEncoder(smaller, net.classes)
    stored = net.state_dict()
    names = {f"layers.{new}.": f"layers.{old}." for new, old in enumerate(kept)}
    mine = alone.state_dict()
    for name in mine:
        prefix = next((each for each in names if name.startswith(each)), "")
        mine[name] = stored[names[prefix] + name.removeprefix(prefix) if prefix else name]
    alone.load_state_dict(mine)
    return alone


def supernet(run: Run) -> tuple[ElasticEncoder, EncoderSpace]:
    """The one that `ours` trained."""
    from hwbench.accuracy.supernet.bert.training import opened

    run.result("ours")
    folder = material.place(run, "ours")
    space = EncoderSpace.of(read_json(folder / SPACE, "space of subnets")["space"])
    net = material.teacher(run, SEED).net
    stored = opened(folder / "supernet.safetensors", supernet_identity(folder))
    for name, parameter in net.named_parameters():
        parameter.data.copy_(stored.get_tensor(name))
    return net, space


def supernet_identity(folder: Path) -> str:
    """As its checkpoint states it: which one this is, is known from the folder."""
    import json

    from safetensors import safe_open

    with safe_open(str(folder / "supernet.safetensors"), "pt") as stored:
        return str(json.loads(stored.metadata()["training"])["identity"])


def searches(run: Run) -> list[dict[str, Any]]:
    """Three seeds of the search on that supernet, and random subnets as dear as the first winner."""
    net, space = supernet(run)
    judge = SubnetAccuracy(net, material.material(run).dev)
    found = []
    for seed in SEARCHES:
        folder = material.place(run, f"search-{seed}")
        with run.progress(f"searching, seed {seed}") as tick:
            document = search(
                space, out=folder, budget=share(run), objective="pareto", statistic=STATISTIC, seed=seed, accuracy=judge,
                evaluations=12 if run.tiny else run.options.evaluations, tick=tick, workspace=run.workspace,
            )  # fmt: skip
        best = document["search"]["finalists"][0]
        found.append({"seed": seed, "architecture": document["architectures"][0], **best})
    return found


def random(run: Run) -> list[dict[str, Any]]:
    """Random subnets of the same supernet, predicted to be as dear as our winner."""
    net, space = supernet(run)
    winner = run.result("ours")["subnets"][0]["latency_ms"]["predicted"]
    latency = latency_cost(choose(space, STATISTIC, pricing(run).target).latency, space, LATENCY)
    drawn = sample(space, DRAWN, np.random.default_rng(SEED))
    ms = latency.value(drawn)
    near = np.flatnonzero((ms <= winner) & (ms >= winner * (1 - NEAR)))
    near = near if len(near) >= RANDOM else np.argsort(np.abs(ms - winner))
    judge = SubnetAccuracy(net, material.material(run).dev)
    found = []
    for number, at in enumerate(near[:RANDOM]):
        architecture = to_values(space, drawn[:, at])
        write_onnx(subnet(net, architecture), material.place(run, "random") / str(number) / "fp32.onnx")
        found.append({"architecture": architecture, "predicted_ms": float(ms[at]), "dev": judge(architecture)})
    return found


def int8(run: Run) -> dict[str, Any]:
    """A subnet of ours at half of what the whole encoder takes in int8: searched by the rows of int8."""
    net, space = supernet(run)
    mine = pricing(run, INT8)
    with run.progress("rows of the space in int8") as tick:
        mine.profile(space, tick)
        mine.fit(space, tick)
    judge = SubnetAccuracy(net, material.material(run).dev)
    with run.progress("searching by int8") as tick:
        document = search(
            space, out=material.place(run, "search-int8"), budget=share(run), objective="pareto", statistic=STATISTIC,
            seed=SEED, evaluations=12 if run.tiny else run.options.evaluations, setting=INT8, workspace=run.workspace,
            accuracy=judge, tick=tick,
        )  # fmt: skip
    architecture = document["architectures"][0]
    write_onnx(subnet(net, architecture), material.place(run, "int8") / "fp32.onnx")
    return {"architecture": architecture, **document["search"]["finalists"][0]}


def models(run: Run) -> dict[str, Path]:
    """Name -> fp32 file of everything in the table."""
    found = {"full": "ours/full", "ours": "ours/subnet-0", "ours by int8": "int8", "every second layer": "every-second"}
    found |= {f"random {i}": f"random/{i}" for i in range(len(run.result("random")))}
    found |= {"l1": "l1/subnet-0", "netadapt": "netadapt/subnet-0"}
    for stage in ("ours", "int8", "every-second", "l1", "netadapt"):
        run.result(stage)
    return {name: run.out / "unfinished" / where / "fp32.onnx" for name, where in found.items()}


def table(run: Run) -> dict[str, Any]:
    """Accuracies of all on dev and test, in fp32 and int8. Here the test sentences are opened, once."""
    known = material.material(run)
    told = read(known.files["test"])
    test = encoded(told, known.given.classes, known.given.tokenizer.encode, known.given.tokenizer.padding)
    found: dict[str, Any] = {"labels": test.labels.tolist(), "networks": {}}
    for name, path in models(run).items():
        target = path.with_name("int8.onnx")
        if not target.exists():
            quantize.convert(path, "int8", target, calibration(known.train), keep=masked_nodes(path))
        files = dict(zip(FORMATS, (path, target), strict=True))
        found["networks"][name] = {form: _answers(file, {"dev": known.dev, "test": test}) for form, file in files.items()}
    return found


def _answers(path: Path, data: Mapping[str, Encoded]) -> dict[str, Any]:
    """Accuracies, and which test sentences were right: what paired intervals are made of."""
    right = {name: logits(path, each).argmax(1) == each.labels for name, each in data.items()}
    return {name: 100 * float(each.mean()) for name, each in right.items()} | {"right": np.flatnonzero(right["test"]).tolist()}


def interleaved(run: Run, paths: list[Path]) -> list[dict[str, Any]]:
    """Measured side by side, the first as what the rest is compared with."""
    known = material.material(run)
    shapes, fills = dict.fromkeys(INPUTS, (1, known.tokens)), dict(zip(INPUTS, (0, 1), strict=True))
    policy = BRIEF if run.tiny else COMPARE_POLICY
    found = measure(paths, device="local", shapes=shapes, fills=fills, workspace=run.workspace, policy=policy)
    kept = ("latency_min_ms", "latency_median_ms", "verdict", "compared_with_first")
    return [{name: each.get(name) for name in kept} for each in found]


def latencies(run: Run) -> dict[str, Any]:
    """All of the table side by side, in either format. Measures: wants quiet."""
    run.result("table")
    files = models(run)
    found: dict[str, Any] = {}
    for form in FORMATS:
        with run.progress(f"measuring {form}"):
            told = interleaved(run, [path.with_name(f"{form}.onnx") for path in files.values()])
        found[form] = dict(zip(files, told, strict=True))
    return found


STAGES = {
    "rows": rows, "ours": ours, "l1": l1, "netadapt": netadapt, "every-second": every_second, "searches": searches,
    "random": random, "int8": int8, "table": table, "latencies": latencies,
}  # fmt: skip
