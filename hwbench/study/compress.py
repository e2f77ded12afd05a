"""hwbench.compress: a BERT-family encoder of one's own, cut to a latency budget (EFTNAS, Munoz et al. 2024).

    hwbench compress --model DIR --train train.tsv --dev dev.tsv --budget 0.5x --out cut

Stages, each of which goes on where it was stopped, and costs nothing once it is through:
    settings.json            what was asked; another question is refused in the same folder
    teacher.safetensors      the whole encoder, fine-tuned; how important its weights are
    (workspace)              latencies of its blocks and of some of its subnets: `profile` and `fit`
    space.json               the space of subnets, from importance and latencies
    supernet.safetensors     the weights that all of them share
    search/                  as any search leaves it
    full/, subnet-N/         fp32.onnx and int8.onnx; tokenizer/ is that of all
    compress.json            the result; compress.md and front.svg show it
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hwbench.accuracy.supernet.bert.folder import EncoderConfig, FolderTokenizer, fingerprint_of, read_config
from hwbench.accuracy.supernet.bert.sentences import Encoded, Sentences, classes_of, encoded, read
from hwbench.core import registry
from hwbench.core.command import extra, hint
from hwbench.core.errors import UnknownName, UsageError
from hwbench.core.files import fingerprint, read_json, write_json
from hwbench.core.progress import Tick, step
from hwbench.device.target import LOCAL, Target
from hwbench.lut.table import Lut
from hwbench.network.op.base import op_of
from hwbench.network.spec import Setting
from hwbench.optimize.cost import latency_cost, op_cost
from hwbench.optimize.cost_kind import LATENCY
from hwbench.optimize.errors import InfeasibleBudget
from hwbench.optimize.relative_budget import factor_of
from hwbench.optimize.result import FINALISTS
from hwbench.optimize.search import search
from hwbench.optimize.weight_sharing.threshold_space import nested, threshold_space
from hwbench.predictor.fit import fit
from hwbench.predictor.models import choose
from hwbench.predictor.space_latency import stored_sums
from hwbench.profiler.measure import COMPARE_POLICY
from hwbench.profiler.networks import NETWORK_POLICY
from hwbench.profiler.policy import Policy
from hwbench.profiler.profile import profile
from hwbench.space.activity import size
from hwbench.space.architectures import RESULT_NAME
from hwbench.space.base import Population
from hwbench.space.encoder import EncoderSizes, EncoderSpace
from hwbench.study import compress_report, cut_subnets

if TYPE_CHECKING:
    from hwbench.accuracy.supernet.bert.cutting import Task, Teacher
    from hwbench.accuracy.supernet.bert.encoder import ElasticEncoder

SETTINGS, SPACE, SEARCH, RESULT = "settings.json", "space.json", "search", "compress.json"
NETWORKS = 8
"""Subnets measured to fit a predictor, and as many held out."""
STEPS = 16
"""Feed-forward widths there are at least between nothing and all."""
BELOW, LEAST_BELOW = 0.75, 0.5
"""The smallest subnet of the space is sought at that share of the budget, as bounds lie above predictions and a front below it,
and at that share of the whole encoder where the budget is loose."""
FEWEST = 8 * NETWORKS
"""Subnets below which a space is no space: those that are measured must be different ones."""
USUAL_LENGTH, LENGTH_STEP = 90, 8
"""Percentile of the dev sentences' lengths, rounded up to a multiple, at which latencies are told."""
MACS, STATISTIC = "macs_m", "min"
SPACE_COSTS = (LATENCY, MACS)


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


@dataclass(frozen=True)
class _Asked:
    """Everything the result depends on; stored, and compared where a folder is taken up again."""

    model: str
    train: str
    dev: str
    test: str | None
    budget: str | None
    budget_ms: float | None
    device: str
    threads: int
    tokens: int
    importance: str
    space_cost: str
    configurations: int
    rule: str
    teacher: str
    epochs: int
    supernet_epochs: int
    strategy: str | None
    evaluations: int
    subnets: int
    seed: int


@dataclass(frozen=True)
class _Inputs:
    """What was read before anything began."""

    config: EncoderConfig
    classes: tuple[str, ...]
    tokenizer: FolderTokenizer
    data: Mapping[str, Encoded]
    """train, dev and, where given, test."""


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

    Raises:
        UsageError: model, sentences or budget cannot be used; the message names what.
        InfeasibleBudget: no subnet keeps the budget; the message has the least reachable, and its accuracy.
    """
    _require_torch()
    if (budget is None) == (budget_ms is None):
        raise UsageError("A budget is needed, and one only: --budget 0.5x or --budget-ms MS.")
    factor = factor_of(budget) if budget is not None else None
    _check_parts(space_cost, importance, rule, teacher, strategy)
    paths = {name: Path(path) for name, path in (("train", train), ("dev", dev), ("test", test)) if path is not None}
    given = _read(Path(model), paths)
    length = _length(given, tokens)
    target = Target.of(device, setting=Setting(threads=threads), workspace=workspace)
    marks = {name: _content(path) for name, path in paths.items()}
    asked = _Asked(
        model=fingerprint_of(model), train=marks["train"], dev=marks["dev"], test=marks.get("test"), budget=budget,
        budget_ms=budget_ms, device=target.device, threads=threads, tokens=length, importance=importance,
        space_cost=space_cost, configurations=configurations, rule=rule, teacher=teacher, epochs=effort.epochs,
        supernet_epochs=effort.supernet_epochs, strategy=strategy, evaluations=effort.evaluations,
        subnets=effort.subnets, seed=seed,
    )  # fmt: skip
    folder = Path(out)
    _claim(folder, asked)
    if (folder / RESULT).exists():
        through: dict[str, Any] = read_json(folder / RESULT, "result of a compression")
        return through
    document = _Job(Path(model), folder, given, asked, target, device, factor, effort).result()
    compress_report.write(folder, document)
    write_json(folder / RESULT, document)
    return document


@dataclass(frozen=True)
class _Job:
    """The stages, one after the other."""

    model: Path
    folder: Path
    given: _Inputs
    asked: _Asked
    target: Target
    device: str
    """As it was asked for: `local` is checked to be this machine."""
    factor: float | None
    effort: Effort

    def result(self) -> dict[str, Any]:
        """All of them."""
        from hwbench.accuracy.supernet.bert.cutting import SubnetAccuracy, fine_tuned, shared
        from hwbench.accuracy.supernet.bert.training import Recipe

        with step("1/6 fine-tuning the encoder") as tick:
            teacher = fine_tuned(self._task, Recipe(self.effort.epochs), self.asked.importance, tick=tick)
        with step("2/6 measuring its blocks") as tick:
            space = self._space(teacher, tick)
        with step("3/6 training subnets") as tick:
            recipe = Recipe(self.effort.supernet_epochs)
            net = shared(teacher, space, self._task, recipe, self.asked.rule, self.asked.teacher, tick)
        with step("4/6 measuring subnets to calibrate") as tick:
            self._fit(space, tick)
        with step("5/6 searching") as tick:
            found = self._search(space, SubnetAccuracy(net, self.given.data["dev"]), tick)
        with step("6/6 exporting and measuring what was found"):
            return self._document(teacher.net, net, found)

    @property
    def _where(self) -> dict[str, Any]:
        return {"device": self.device, "setting": self.target.setting, "workspace": self.target.workspace.root}

    @property
    def _task(self) -> Task:
        from hwbench.accuracy.supernet.bert.cutting import Task

        identity = fingerprint(asdict(self.asked))
        return Task(self.model, self.given.classes, self.given.data["train"], self.asked.seed, self.folder, identity)

    def _grid(self) -> EncoderSpace:
        config = self.given.config
        sizes = EncoderSizes(
            vocabulary=config.vocabulary, positions=config.positions, dim=config.dim, head_dim=config.head_dim,
            classes=len(self.given.classes), tokens=self.asked.tokens, activation=config.activation,
        )  # fmt: skip
        steps = next(n for n in range(min(STEPS, config.hidden), config.hidden + 1) if config.hidden % n == 0)
        return EncoderSpace.grid(sizes, config.widths, config.hidden // steps)

    def _space(self, teacher: Teacher, tick: Tick) -> EncoderSpace:
        """By algorithm 1, once; what it is made of is stored."""
        path, grid = self.folder / SPACE, self._grid()
        if path.exists():
            return EncoderSpace.of(read_json(path, "space of subnets")["space"])
        cost, budget = self._cost(grid, tick)
        smallest, full = cost(nested(grid, teacher.scores)[1][:, [0, -1]])
        least = float(max(min(BELOW * budget, LEAST_BELOW * full), smallest))
        made = threshold_space(grid, teacher.scores, cost, min(least, float(full)), float(full), self.asked.configurations)
        if (found := size(made.space)) < FEWEST:
            raise UsageError(
                f"Only {found} subnets lie between {least:.4g} and {full:.4g} ({self.asked.space_cost}): raise "
                "--configurations or lower the budget, in another --out."
            )
        anchors = [asdict(anchor) for anchor in made.anchors]
        write_json(path, {"schema": 1, "space": made.space.document(), "cost": self.asked.space_cost, "anchors": anchors})
        return made.space

    def _cost(self, grid: EncoderSpace, tick: Tick) -> tuple[Callable[[Population], np.ndarray], float]:
        """(what the space is a range of, the budget in the same terms).

        Of latencies the upper bound, because that is held against the budget; so a calibration on the grid comes first.
        """
        profile(grid, **self._where, policy=self.effort.rows, tick=tick)
        full = grid.column_of(self.given.config.widths)[:, None]
        if self.asked.space_cost == LATENCY:
            self._fit(grid, tick)
            cost = latency_cost(choose(grid, STATISTIC, self.target).latency, grid, LATENCY)
            return cost.upper, self.asked.budget_ms or self.factor * float(cost.value(full)[0])  # type: ignore[operator]
        macs = op_cost(grid, MACS, "millions", lambda specs: np.array([op_of(s).work(s).macs / 1e6 for s in specs]))
        share = self.factor
        if share is None:  # milliseconds become a share by the sum of the rows
            table = Lut.of(self.target, [grid.name])
            rows = op_cost(grid, LATENCY, "ms", lambda specs: table.column(specs, self.target, spaces=[grid.name]))
            share = float(self.asked.budget_ms or 0) / float(rows.value(full)[0])
        return macs.value, share * float(macs.value(full)[0])

    def _fit(self, space: EncoderSpace, tick: Tick) -> None:
        """Measures subnets, unless a predictor knows the space already."""
        if any(space.name in card.spaces for _, card in stored_sums(self.target)):
            return
        fit(space, **self._where, networks=NETWORKS, holdout=NETWORKS, policy=self.effort.networks, tick=tick)

    def _search(self, space: EncoderSpace, accuracy: Any, tick: Tick) -> dict[str, Any]:
        """Once: a search that is through is read."""
        place = self.folder / SEARCH
        if (place / RESULT_NAME).exists():
            found: dict[str, Any] = read_json(place / RESULT_NAME, "search result")
            return found
        try:
            return search(
                space, self.asked.budget_ms, place, budget=self.asked.budget, objective="pareto", statistic=STATISTIC,
                strategy=self.asked.strategy, evaluations=self.asked.evaluations, seed=self.asked.seed,
                accuracy=accuracy, tick=tick, **self._where,
            )  # fmt: skip
        except InfeasibleBudget as error:
            raise InfeasibleBudget(
                f"{error} The nearest, {error.architecture}, has an accuracy of {accuracy(error.architecture):.2f} % on dev.",
                limits=error.limits, least=error.least, nearest=error.nearest, path=error.path,
            ) from None  # fmt: skip

    def _document(self, teacher: ElasticEncoder, net: ElasticEncoder, found: Mapping[str, Any]) -> dict[str, Any]:
        """Everything exported, its accuracies and latencies; what stands in compress.json."""
        from hwbench.accuracy.supernet.bert.cutting import subnet

        self.given.tokenizer.save(self.folder / cut_subnets.TOKENIZER)
        settings = found["search"]
        cuts = [cut_subnets.Cut("full", teacher, None)]
        chosen = list(zip(found["architectures"], settings["finalists"], strict=True))[: self.asked.subnets]
        for i, (architecture, facts) in enumerate(chosen):
            cuts.append(cut_subnets.Cut(f"subnet-{i}", subnet(net, architecture).plain(), facts))
        how = cut_subnets.Measuring(self.target, self.device, self.asked.tokens, self.effort.finalists)
        told = cut_subnets.cut(self.folder, cuts, self.given.data, how)
        return {
            "schema": 1,
            "labels": list(self.given.classes),
            "tokenizer": cut_subnets.TOKENIZER,
            "tokens": self.asked.tokens,
            "device": self.target.device,
            "threads": self.asked.threads,
            "statistic": settings["statistic"],
            "budget": {"factor": settings["budget_factor"], "ms": settings["budget_ms"]},
            "space": found["space"],
            "evaluated": settings["evaluated"],
            "settings": asdict(self.asked),
            "full": told[0],
            "subnets": told[1:],
            "notes": settings["notes"],
        }


def _require_torch() -> None:
    from importlib.util import find_spec

    missing = [name for name in ("torch", "safetensors", "transformers") if find_spec(name) is None]
    if missing:
        raise UsageError(f"compress needs {' and '.join(missing)}. {hint(extra('compress'))}")


def _check_parts(space_cost: str, importance: str, rule: str, teacher: str, strategy: str | None) -> None:
    """Raises for a name that would be refused after hours only."""
    from hwbench.accuracy.supernet.bert.importance import KINDS
    from hwbench.accuracy.supernet.bert.training import RULES, TEACHERS, check_rule

    for what, asked, known in (
        ("cost that a space is a range of", space_cost, SPACE_COSTS),
        ("importance", importance, KINDS),
        ("rule", rule, RULES),
        ("teacher", teacher, TEACHERS),
    ):
        if asked not in known:
            raise UnknownName(registry.unknown(what, asked, known))
    check_rule(rule, teacher)
    if strategy is not None and not registry.is_registered("strategy", strategy):
        names = [registry.shown("strategy", each) for each in registry.names("strategy")]
        raise UnknownName(registry.unknown("strategy", strategy, names))


def _read(model: Path, paths: Mapping[str, Path]) -> _Inputs:
    """Model and sentences, checked before anything long begins."""
    config = read_config(model)
    tokenizer = FolderTokenizer(model, config.positions)
    sentences: dict[str, Sentences] = {name: read(path) for name, path in paths.items()}
    classes = classes_of(*sentences.values())
    data = {name: encoded(each, classes, tokenizer.encode, tokenizer.padding) for name, each in sentences.items()}
    return _Inputs(config, classes, tokenizer, data)


def _length(given: _Inputs, tokens: int | None) -> int:
    """Tokens of the text whose latency counts."""
    most = given.config.positions
    if tokens is None:
        usual = float(np.percentile(given.data["dev"].lengths, USUAL_LENGTH))
        return min(most, int(-(-usual // LENGTH_STEP) * LENGTH_STEP))
    if tokens > most:
        raise UsageError(f"--tokens {tokens}: this encoder reads at most {most}.")
    return tokens


def _content(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _claim(folder: Path, asked: _Asked) -> None:
    """Makes the folder this job's own, or recognises it as such.

    Raises:
        UsageError: it holds another one; the message says in what they differ.
    """
    path, now = folder / SETTINGS, asdict(asked)
    if not path.exists():
        write_json(path, now)
        return
    before = read_json(path, "settings of a compression")
    for name, value in now.items():
        if before.get(name) != value:
            raise UsageError(
                f"{folder} was begun with another {name}: {before.get(name)!r}, now {value!r}. Choose another --out."
            )
