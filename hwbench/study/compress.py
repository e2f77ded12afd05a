"""hwbench.compress: a BERT-family encoder of one's own, cut to a latency budget (EFTNAS, Munoz et al. 2024).

    hwbench compress --model DIR --train train.tsv --dev dev.tsv --budget 0.5x --out cut

Stages, each of which goes on where it was stopped, and costs nothing once it is through:
    settings.json            what was asked; another question is refused in the same folder
    teacher.safetensors      the whole encoder, fine-tuned; how important its weights are
    (workspace)              latencies of its blocks and of some of its subnets: `profile` and `fit`
    space.json               the space of subnets, from importance and latencies
    supernet.safetensors     the weights that all of them share
    search/                  as any search leaves it
    netadapt.safetensors     instead of these three: what is left after the last cut (--method netadapt)
    subnet-N.safetensors     where subnets learn on alone: the last of that
    full/, subnet-N/         fp32.onnx and int8.onnx; tokenizer/ is that of all
    compress.json            the result; compress.md and front.svg show it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.accuracy.supernet.bert.folder import fingerprint_of
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import check_seal, fingerprint, read_json, write_sealed
from hwbench.core.progress import Tick, step
from hwbench.device.target import LOCAL, Target
from hwbench.network.spec import Setting
from hwbench.optimize.errors import InfeasibleBudget
from hwbench.optimize.relative_budget import factor_of
from hwbench.optimize.result import FINALISTS
from hwbench.optimize.search import search
from hwbench.optimize.weight_sharing.threshold_space import nested, threshold_space
from hwbench.profiler.measure import COMPARE_POLICY
from hwbench.profiler.networks import NETWORK_POLICY
from hwbench.profiler.policy import Policy
from hwbench.space.activity import size
from hwbench.space.architectures import RESULT_NAME, read_document
from hwbench.space.encoder import EncoderSpace
from hwbench.study import compress_inputs as inputs
from hwbench.study import compress_report, cut_subnets
from hwbench.study.compress_inputs import NETADAPT, SUPERNET, Asked, Inputs
from hwbench.study.encoder_costs import NETWORKS, STATISTIC, Pricing, grid_of, told
from hwbench.study.mixed_precision import Mixing

if TYPE_CHECKING:
    from hwbench.accuracy.supernet.bert.cutting import Task, Teacher
    from hwbench.accuracy.supernet.bert.encoder import ElasticEncoder

SPACE, SEARCH, RESULT = "space.json", "search", "compress.json"
SCHEMA = 2
"""Of the first and the last: 1, as they were begun; 2, they state a hash of all else in them."""
BELOW, LEAST_BELOW = 0.75, 0.5
"""The smallest subnet of the space is sought at that share of the budget, as bounds lie above predictions and a front below it,
and at that share of the whole encoder where the budget is loose."""
FEWEST = 8 * NETWORKS
"""Subnets below which a space is no space: those that are measured must be different ones."""


@dataclass(frozen=True)
class Effort:
    """How long each stage works; what a quick look changes."""

    epochs: int = 3
    supernet_epochs: int = 4
    evaluations: int = 200
    subnets: int = FINALISTS
    """Exported and measured; a search tells so many."""
    rows: Policy = Policy()
    networks: Policy = NETWORK_POLICY
    finalists: Policy = COMPARE_POLICY
    tune_epochs: int = 0
    """In which every subnet that was found learns on alone; the paper needs none."""
    short_steps: int = 20
    """In which NetAdapt trains each cut that it considers."""


@dataclass(frozen=True)
class _Found:
    """A subnet to be exported."""

    architecture: Mapping[str, Any]
    net: ElasticEncoder
    facts: Mapping[str, Any]


def compress(
    model: str | Path,
    train: str | Path,
    dev: str | Path,
    out: str | Path,
    test: str | Path | None = None,
    budget: str | None = None,
    budget_ms: float | None = None,
    device: str = LOCAL,
    threads: int = 1,
    workspace: str | Path = ".",
    tokens: int | None = None,
    importance: str = "movement",
    space_cost: str = "latency_ms",
    configurations: int = 5,
    rule: str = "sandwich",
    teacher: str = "fixed",
    strategy: str | None = None,
    seed: int = 0,
    effort: Effort = Effort(),
    method: str = SUPERNET,
    mixed: float | None = None,
) -> dict[str, Any]:
    """Cuts an encoder to a budget; returns the document it wrote to `out`/compress.json.

    Args:
        model: Folder with config.json, model.safetensors and tokenizer, pre-trained or fine-tuned.
        train: TSV to learn from: sentence (or sentence1, sentence2) and label.
        dev: TSV by which subnets are chosen.
        out: Folder of this job; run again to go on.
        test: TSV that decides nothing; accuracies on it are reported.
        budget: `0.5x`: times the latency predicted of the whole encoder.
        budget_ms: Or the budget in milliseconds (min).
        device: `local` or a device's name.
        threads: Threads of the runtime.
        workspace: Where tables and predictors are.
        tokens: Length of the text whose latency counts; if not given, that within which nine of ten dev sentences stay.
        importance: movement, l1 or none: what puts units in order and shapes the space.
        space_cost: latency_ms or macs_m: of what the space is a range.
        configurations: Subnets the space is made of.
        rule: Which subnets learn in a step: sandwich, single-path or progressive-shrinking.
        teacher: Whose answers subnets learn from: `fixed`, the fine-tuned encoder, or `in-place`, the largest subnet of a step.
        strategy: How subnets are proposed; `nsga2` is the paper's.
        seed: Same seed, same weights and same search.
        effort: How long.
        method: `supernet`: all subnets learn together, and are searched. `netadapt`: one is cut step by step, and learns alone;
            then what shapes spaces and searches is not looked at.
        mixed: A third form of each network: its blocks in int8 where that is fastest, losing at most so many points on dev.

    Raises:
        UsageError: model, sentences or budget cannot be used; the message names what.
        InfeasibleBudget: no subnet keeps the budget; the message has the least reachable, and its accuracy.
    """
    inputs.require_torch()
    if (budget is None) == (budget_ms is None):
        raise UsageError("A budget is needed, and one only: --budget 0.5x or --budget-ms MS.")
    factor = factor_of(budget) if budget is not None else None
    inputs.check_parts(method, space_cost, importance, rule, teacher, strategy)
    paths = {name: Path(path) for name, path in (("train", train), ("dev", dev), ("test", test)) if path is not None}
    given = inputs.read_inputs(Path(model), paths)
    length = inputs.length_of(given, tokens)
    target = Target.of(device, setting=Setting(threads=threads), workspace=workspace)
    marks = {name: inputs.content_of(path) for name, path in paths.items()}
    asked = Asked(
        model=fingerprint_of(model), train=marks["train"], dev=marks["dev"], test=marks.get("test"), budget=budget,
        budget_ms=budget_ms, device=target.device, threads=threads, tokens=length, importance=importance,
        space_cost=space_cost, configurations=configurations, rule=rule, teacher=teacher, epochs=effort.epochs,
        supernet_epochs=effort.supernet_epochs, strategy=strategy, evaluations=effort.evaluations,
        subnets=effort.subnets, seed=seed, method=method, tune_epochs=effort.tune_epochs, mixed=mixed,
    )  # fmt: skip
    folder = Path(out)
    inputs.claim(folder, asked)
    if (folder / RESULT).exists():
        return _sealed(folder / RESULT, "Result of a compression")
    document = _Job(Path(model), folder, given, asked, target, device, factor, effort).result()
    compress_report.write(folder, document)
    write_sealed(folder / RESULT, document)
    return document


def _sealed(path: Path, what: str) -> dict[str, Any]:
    """What an earlier run left.

    Raises:
        DataError: it was edited; without it, the same command makes it again, as what was trained stays.
    """
    again = "remove it and run the same command: what was trained stays."
    document = read_json(path, what, again)
    if not isinstance(document, dict):
        raise DataError(f"{path} is no {what.lower()}; {again}")
    return check_seal(document, path, what, again, document.get("schema") != 1)


@dataclass(frozen=True)
class _Job:
    """The stages, one after the other."""

    model: Path
    folder: Path
    given: Inputs
    asked: Asked
    target: Target
    device: str
    """As it was asked for: `local` is checked to be this machine."""
    factor: float | None
    effort: Effort

    def result(self) -> dict[str, Any]:
        """All of them."""
        from hwbench.accuracy.supernet.bert.cutting import fine_tuned
        from hwbench.accuracy.supernet.bert.training import Recipe

        with step("1/6 fine-tuning the encoder") as tick:
            task = replace(self._task, identity=inputs.teacher_identity(self.asked))
            teacher = fine_tuned(task, Recipe(self.effort.epochs), self.asked.importance, tick=tick)
        whole, found, settings = self._adapted(teacher) if self.asked.method == NETADAPT else self._searched(teacher)
        with step("6/6 exporting and measuring what was found"):
            return self._document(teacher, whole, found, settings)

    @property
    def _task(self) -> Task:
        from hwbench.accuracy.supernet.bert.cutting import Task

        identity = fingerprint(asdict(self.asked))
        return Task(self.model, self.given.classes, self.given.data["train"], self.asked.seed, self.folder, identity)

    @property
    def _grid(self) -> EncoderSpace:
        return grid_of(self.given.config, len(self.given.classes), self.asked.tokens)

    @property
    def _full(self) -> np.ndarray:
        return self._grid.column_of(self.given.config.widths)

    @property
    def _pricing(self) -> Pricing:
        return Pricing(self.target, self.device, self.effort.rows, self.effort.networks)

    def _searched(self, teacher: Teacher) -> tuple[Mapping[str, float], list[_Found], dict[str, Any]]:
        """(what is predicted of the whole encoder, subnets of one set of shared weights, what the search says of itself)."""
        from hwbench.accuracy.supernet.bert.cutting import SubnetAccuracy, shared, subnet
        from hwbench.accuracy.supernet.bert.training import Recipe

        with step("2/6 measuring its blocks") as tick:
            space = self._space(teacher, tick)
        with step("3/6 training subnets") as tick:
            recipe = Recipe(self.effort.supernet_epochs)
            net = shared(teacher, space, self._task, recipe, self.asked.rule, self.asked.teacher, tick)
        with step("4/6 measuring subnets to calibrate") as tick:
            self._pricing.fit(space, tick)
        with step("5/6 searching") as tick:
            document = self._search(space, SubnetAccuracy(net, self.given.data["dev"]), tick)
        settings = {**document["search"], "space": document["space"]}
        chosen = list(zip(document["architectures"], settings["finalists"], strict=True))[: self.asked.subnets]
        found = [_Found(architecture, subnet(net, architecture).plain(), facts) for architecture, facts in chosen]
        (whole,) = told(space, self.target, space.column_of(self.given.config.widths)[:, None])
        return whole, found, settings

    def _adapted(self, teacher: Teacher) -> tuple[Mapping[str, float], list[_Found], dict[str, Any]]:
        """(what is predicted of the whole encoder, the subnet that is left, what is known of the way there)."""
        from hwbench.accuracy.supernet.bert.cutting import tuned
        from hwbench.accuracy.supernet.bert.short_training import ShortTraining
        from hwbench.accuracy.supernet.bert.training import Recipe
        from hwbench.optimize.weight_sharing.netadapt import netadapt

        grid, full, kind = self._grid, self._full, self.asked.space_cost
        with step("2/6 measuring its blocks") as tick:
            cost, budget = self._pricing.cost(grid, full, kind, self.factor, self.asked.budget_ms, tick)
            if kind != "latency_ms":
                self._pricing.fit(grid, tick)
        with step("3/6 cutting step by step") as tick:
            short = ShortTraining(teacher.net, self._task, self.given.data["dev"], self.effort.short_steps)
            cuts = netadapt(grid, cost, budget, full, short, tick=tick)
        with step("4/6 training what is left") as tick:
            net = tuned(short.net, teacher.net, self._task, Recipe(self.effort.supernet_epochs), "netadapt-tuned", tick)
        widths = net.widths
        (facts,) = told(grid, self.target, grid.column_of(widths)[:, None])
        (whole,) = told(grid, self.target, full[:, None])
        ms = self.asked.budget_ms or float(self.factor or 0) * whole["latency_ms"]
        settings: dict[str, Any] = {
            "space": grid.name, "statistic": STATISTIC, "budget_factor": self.factor, "budget_ms": ms,
            "evaluated": sum(cut.considered for cut in cuts), "notes": [],
        }  # fmt: skip
        return whole, [_Found({"depth": widths.depth, **asdict(widths)}, net, facts)], settings

    def _space(self, teacher: Teacher, tick: Tick) -> EncoderSpace:
        """By algorithm 1, once; what it is made of is stored."""
        path, grid = self.folder / SPACE, self._grid
        if path.exists():
            return EncoderSpace.of(_sealed(path, "Space of subnets")["space"])
        cost, budget = self._pricing.cost(
            grid, self._full, self.asked.space_cost, self.factor, self.asked.budget_ms, tick
        )  # fmt: skip
        smallest, full = cost(nested(grid, teacher.scores)[1][:, [0, -1]])
        least = float(max(min(BELOW * budget, LEAST_BELOW * full), smallest))
        made = threshold_space(grid, teacher.scores, cost, min(least, float(full)), float(full), self.asked.configurations)
        if (found := size(made.space)) < FEWEST:
            raise UsageError(
                f"Only {found} subnets lie between {least:.4g} and {full:.4g} ({self.asked.space_cost}): raise "
                "--configurations or lower the budget, in another --out."
            )
        anchors = [asdict(anchor) for anchor in made.anchors]
        write_sealed(
            path, {"schema": SCHEMA, "space": made.space.document(), "cost": self.asked.space_cost, "anchors": anchors}
        )
        return made.space

    def _search(self, space: EncoderSpace, accuracy: Any, tick: Tick) -> dict[str, Any]:
        """Once: a search that is through is read."""
        place = self.folder / SEARCH
        if (place / RESULT_NAME).exists():
            return read_document(place / RESULT_NAME)
        try:
            return search(
                space, self.asked.budget_ms, place, budget=self.asked.budget, objective="pareto", statistic=STATISTIC,
                strategy=self.asked.strategy, evaluations=self.asked.evaluations, seed=self.asked.seed,
                accuracy=accuracy, tick=tick, **self._pricing.where,
            )  # fmt: skip
        except InfeasibleBudget as error:
            raise InfeasibleBudget(
                f"{error} The nearest, {error.architecture}, has an accuracy of {accuracy(error.architecture):.2f} % on dev.",
                limits=error.limits, least=error.least, nearest=error.nearest, path=error.path,
            ) from None  # fmt: skip

    def _tuned(self, teacher: Teacher, found: Sequence[_Found]) -> list[ElasticEncoder]:
        """The subnets, each trained on alone where that was asked for."""
        from hwbench.accuracy.supernet.bert.cutting import tuned
        from hwbench.accuracy.supernet.bert.training import Recipe

        nets = []
        for i, each in enumerate(found):
            if self.effort.tune_epochs:
                with step(f"training subnet {i}") as tick:
                    recipe = Recipe(self.effort.tune_epochs)
                    nets.append(tuned(each.net, teacher.net, self._task, recipe, f"subnet-{i}", tick))
            else:
                nets.append(each.net)
        return nets

    def _document(
        self, teacher: Teacher, whole: Mapping[str, float], found: Sequence[_Found], settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Everything exported, its accuracies and latencies; what stands in compress.json."""
        self.given.tokenizer.save(self.folder / cut_subnets.TOKENIZER)
        cuts = [cut_subnets.Cut("full", teacher.net, whole)]
        for i, (each, net) in enumerate(zip(found, self._tuned(teacher, found), strict=True)):
            cuts.append(cut_subnets.Cut(f"subnet-{i}", net, each.facts))
        mixing = None if self.asked.mixed is None else Mixing(self.asked.mixed, self._grid.sizes, self._pricing)
        how = cut_subnets.Measuring(self.target, self.device, self.asked.tokens, self.effort.finalists, mixing)
        documents = cut_subnets.cut(self.folder, cuts, self.given.data, how)
        notes = [*settings["notes"], *cut_subnets.doubtful(documents, RESULT)]
        return {
            "schema": SCHEMA,
            "labels": list(self.given.classes),
            "tokenizer": cut_subnets.TOKENIZER,
            "tokens": self.asked.tokens,
            "device": self.target.device,
            "threads": self.asked.threads,
            "statistic": settings["statistic"],
            "budget": {"factor": settings["budget_factor"], "ms": settings["budget_ms"]},
            "space": settings["space"],
            "evaluated": settings["evaluated"],
            "settings": asdict(self.asked),
            "full": documents[0],
            "subnets": documents[1:],
            "notes": notes,
        }
