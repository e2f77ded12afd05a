"""What every verb can be asked, and which options each of its ways reads: one table, for the check and for its tests.

A verb has one way of being asked (`Mode`) or several, such as `predict MODEL.onnx` and `predict --space SPACE --arch FILE`. An
option that the way asked for does not read is refused, never passed over; so is a number outside its range (`RANGES`), whatever
the way. Every option of every verb stands here under its parameter's name, and every number has its range: tests see to it.
`_checked.py` holds command lines against this before a verb's own imports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Given = Mapping[str, Any]
"""Parameter -> value, of those that stand on the command line."""


@dataclass(frozen=True)
class Mode:
    """One way to ask a verb."""

    reads: frozenset[str]
    said: str = ""
    """What stands behind the verb's name where this way is meant."""
    when: tuple[str, ...] = ()
    """Any of these given means this way; without any, it is the way that is left."""
    needs: tuple[str, ...] = ()
    """What must be given as well; names with a | between them: one of these."""


@dataclass(frozen=True)
class Only:
    """Options that are read in some cases only."""

    options: tuple[str, ...]
    where: str
    """When, in words: reads --strict only WHERE."""
    met: Callable[[Given], object]


@dataclass(frozen=True)
class Verb:
    """The ways to ask it, in the order in which they are looked for, and what holds for all of them."""

    modes: tuple[Mode, ...]
    only: tuple[Only, ...] = ()


@dataclass(frozen=True)
class Range:
    """The numbers an option takes."""

    least: float = 0
    most: float = float("inf")
    above: bool = False
    """Whether `least` itself is left out."""
    below: bool = False
    """Whether `most` itself is left out."""

    def holds(self, value: float) -> bool:
        """False for NaN and infinity as well."""
        low = value > self.least if self.above else value >= self.least
        high = value < self.most if self.below else value <= self.most
        return low and high and abs(value) != float("inf")

    @property
    def said(self) -> str:
        """In words."""
        ends = []
        if self.least > float("-inf"):
            ends.append(f"{'above' if self.above else 'of at least'} {self.least:g}")
        if self.most < float("inf"):
            ends.append(f"{'below' if self.below else 'of at most' if len(ends) == 0 else 'at most'} {self._whole(self.most)}")
        return " and ".join(ends) or "that is finite"

    @staticmethod
    def _whole(value: float) -> str:
        return f"{value:.0f}" if value == int(value) else f"{value:g}"


def _mode(reads: str, said: str = "", when: str = "", needs: str = "") -> Mode:
    return Mode(frozenset(reads.split()), said, tuple(when.split()), tuple(needs.split()))


def _one(reads: str, *only: Only) -> Verb:
    return Verb((_mode(reads),), only)


def _limits(given: Given) -> list[str]:
    """The costs that a search limits."""
    named = [each.partition("=") for each in _texts(given, "budget", "limit")]  # --budget 0.6x: of the device's latency
    return ["latency_ms"] * ("budget_ms" in given) + [name if separator else "latency_ms" for name, separator, _ in named]


def _texts(given: Given, *names: str) -> list[str]:
    return [text for name in names for text in given.get(name) or ()]


def _limited(*beginnings: str) -> Callable[[Given], bool]:
    return lambda given: any(name.startswith(beginnings) for name in _limits(given))


def _own_device(given: Given) -> bool:
    """Whether a search limits a cost of its --device."""
    return any(name == "latency_ms" or name.partition("@")[2].startswith(str(given["device"])) for name in _limits(given))


def _function(given: Given) -> bool:
    """Whether the accuracy is a function of a file."""
    from hwbench.core.user_code import is_reference

    return is_reference(given.get("accuracy") or "")


def _benchmark(given: Given) -> bool:
    """Whether the accuracy is a benchmark table by its name."""
    name = given.get("accuracy") or ""
    return bool(name) and not _function(given) and not {".parquet", ".csv"} & {Path(name.partition(":")[0]).suffix}


def _json_written(given: Given) -> bool:
    """Whether `measure` prints or writes JSON."""
    from hwbench.study import answer_files

    out = given.get("out")
    return "json" in given or (out is not None and ".json" in answer_files.files(out, answer_files.OF_A_MODEL, "measure"))


NO_JSON = "without --json, which holds all"
EVERYWHERE = (Only(("wide",), NO_JSON, lambda given: "json" not in given),)
"""What holds for every verb."""
OWN_WORKERS = Only(
    ("workers",), "without --executor, which has its own", lambda given: given.get("executor", "processes") == "processes"
)
TARGET = "device runtime threads batch dtype workspace"
EFFORT = "precision max_processes max_seconds seed json"

VERBS: Mapping[str, Verb] = {
    "completion": _one("shell"),
    "doctor": _one("workspace wide json"),
    "device detect": _one("workspace wide json"),
    "device add": _one("name like ssh option python folder workspace wide json"),
    "device setup": _one("name runtime workspace json"),
    "device check": _one("seconds wide json"),
    "device show": _one("name workspace wide json"),
    "device list": _one("workspace wide json"),
    "list": _one(
        "kind workspace wide json",
        Only(
            ("workspace",),
            "for predictors and devices, which lie there",
            lambda given: given.get("kind") in (None, "predictors", "predictor", "aggregator", "devices", "device"),
        ),
    ),
    "sample": _one("space n out seed json"),
    "export": _one("arch out space index batch weights json"),
    "profile": Verb(
        (
            _mode(f"space {TARGET} executor level again doubtful until {EFFORT}", "--space", "space"),
            _mode(f"kernels {TARGET} executor again doubtful {EFFORT}", "--kernels", "kernels"),
            # The batch of a model is a side of its inputs: --shape.
            _mode(f"model shape fill {TARGET.replace('batch ', '')} executor again doubtful {EFFORT}", "--model", "model"),
        ),
        (
            Only(("until",), "with one --device", lambda given: len(given.get("device") or ()) < 2),
            Only(("executor",), "without --until, which chooses rows here", lambda given: "until" not in given),
            Only(("again",), "without --until, which measures what is missing", lambda given: "until" not in given),
            Only(
                ("doubtful",),
                "without --again or --until, which choose the rows",
                lambda given: not {"again", "until"} & {*given},
            ),
        ),
    ),
    "lut check": _one("file workspace json"),
    "lut diff": _one("a b setting everything wide json", Only(("everything",), NO_JSON, lambda given: "json" not in given)),
    "lut compare": Verb(
        (
            _mode(f"space runtime max_seconds out wide json {TARGET}", "--space", "space"),
            _mode(f"runtime out wide json {TARGET}"),
        )
    ),
    "lut history": Verb((_mode("file wide json", "FILE.parquet", "file"), _mode("runtime workspace wide json"))),
    "lut show": Verb(
        (_mode("table doubtful wide json", "FILE.parquet", "table"), _mode("runtime workspace doubtful wide json"))
    ),
    "lut recover": _one("source features out target device shared where wide json"),
    "table import": _one(f"file style source where out json {TARGET}"),
    "fit": Verb(
        (
            _mode(
                "source space beside features target out regressor where noise_column twins repeats rising limit coverage "
                "tables device seed wide json",
                "--from",
                "source",
                "features out",
            ),
            _mode("gpu out tables leave_out adapt measured workspace wide json", "--gpu", "gpu", "out"),
            _mode(f"kernels space no_references {TARGET} networks holdout seed stored wide json", "--kernels", "kernels"),
            _mode(f"space {TARGET} predictor networks holdout seed stored wide json", "--space", "space"),
        ),
        # 1 changes nothing, and cards of older versions say it.
        (
            Only(("repeats",), "with --noise-column", lambda given: "noise_column" in given or given["repeats"] == 1),
            Only(("measured",), "with --adapt", lambda given: "adapt" in given),
        ),
    ),
    "predict": Verb(
        (
            _mode("model memory runtime threads batch shape fill wide json", "MODEL.onnx --memory", "memory", "model"),
            _mode(f"model out shape fill measure_missing layers statistic wide json {TARGET}", "MODEL.onnx", "model"),
            _mode(
                "predictor device source out dtype workspace wide json",
                "--predictor",
                "predictor source",
                "predictor source out",
            ),
            _mode(f"space arch out statistic wide json {TARGET}", "--space SPACE --arch FILE", "space arch", "space arch"),
        ),
        (Only(("layers",), NO_JSON, lambda given: "json" not in given),),
    ),
    "transfer": Verb(
        (
            _mode(
                "predictor device measured source output out dtype workspace wide json",
                "--predictor GPU-OPERATORS",
                "predictor",
                "device measured out|output",
            ),
            _mode("known features choose output wide json", "--choose", "choose", "known features"),
            _mode(
                "known features measured output coverage out device json", "--measured", "measured", "known features output|out"
            ),
        ),
        (
            Only(("device",), "with --out", lambda given: "out" in given or "predictor" in given),
            Only(("out",), "with --device", lambda given: "device" in given),
            Only(("source",), "with --output", lambda given: "output" in given),
            Only(("output",), "with --input", lambda given: "source" in given or "predictor" not in given),
        ),
    ),
    "rebuild": _one("predictors tables workspace wide json"),
    "measure": _one(
        f"models strict scenario sweep shape fill against fail_if_slower out raw wide {TARGET} {EFFORT}",
        Only(("strict",), "with --dtype int8", lambda given: "int8" in (given.get("dtype") or ())),
        Only(
            ("fail_if_slower",),
            "with --against LAST or a second model",
            lambda given: "against" in given or len(given.get("models") or ()) > 1 or len(given.get("dtype") or ()) > 1,
        ),
        Only(("raw",), "with --json or --out FILE.json", _json_written),
    ),
    "score": _one("space arch proxy workers executor workspace wide json", OWN_WORKERS),
    "search": _one(
        f"space out budget_ms budget {TARGET} strategy objective proxy accuracy reuse tables statistic evaluations gamma plain "
        "uncertified limit workers executor seed wide json",
        OWN_WORKERS,
        Only(("proxy",), "without --accuracy, which it would stand in for", lambda given: "accuracy" not in given),
        Only(("reuse",), "with --accuracy FILE.py:NAME", _function),
        Only(("tables",), "with --accuracy and the name of a benchmark", _benchmark),
        Only(("statistic", "plain", "uncertified"), "where a latency is limited", _limited("latency_ms")),
        Only(("device",), "where a cost of the device is limited (--budget 0.7x or --budget-ms MS)", _own_device),
        Only(("runtime", "threads"), "where a latency or instructions are limited", _limited("latency_ms", "instructions_m")),
        Only(
            ("dtype", "batch"),
            "where a latency, instructions or memory are limited",
            _limited("latency_ms", "instructions_m", "memory_mb", "peak_memory"),
        ),
    ),
    "validate": Verb(
        (
            _mode("table proxy tables workspace workers executor wide json", "--proxy", "proxy"),
            _mode(
                "table device cost strategy seeds evaluations setting budget tables out workers executor wide json",
                needs="device|cost",
            ),
        ),
        (OWN_WORKERS,),
    ),
    "specialise": _one("table budget_percentile device complete tables out wide json"),
    "compress": _one(
        "model train dev out test budget budget_ms device threads workspace tokens method importance space_cost configurations "
        "rule teacher epochs supernet_epochs tune_epochs short_steps strategy evaluations subnets mixed seed wide json",
        Only(
            ("configurations", "rule", "teacher", "strategy", "evaluations", "subnets", "tune_epochs"),
            "without --method netadapt, which makes one network and searches nothing",
            lambda given: given.get("method") != "netadapt",
        ),
        Only(("short_steps",), "with --method netadapt", lambda given: given.get("method") == "netadapt"),
    ),
    "verify": _one("result random space workspace seed wide json"),
    "report": _one("result out space workspace wide json"),
    "site": _one("reports out workspace json"),
    "recompute": _one("reports workspace wide json"),
    "quickstart": _one("device runtime workspace seed wide json"),
    "check-part": _one(
        "part kind tables device workspace wide json", Only(("workspace",), "with --device", lambda given: "device" in given)
    ),
}

SHARE = Range(0, 1, above=True, below=True)
RANGES: Mapping[str, Range] = {
    "batch": Range(1, 65_536),
    "budget": Range(0, 100),
    "budget_ms": Range(0, above=True),
    "budget_percentile": Range(0, 100),
    "choose": Range(1, 1_000_000),
    "configurations": Range(2, 64),
    "coverage": SHARE,
    "epochs": Range(1, 1000),
    "evaluations": Range(1, 10_000_000),
    "gamma": Range(float("-inf")),  # which objective takes which is its own to say
    "holdout": Range(4, 100_000),
    "index": Range(0),
    "kernels": Range(1, 100_000),
    "layers": Range(0),
    "limit": Range(1),
    "max_processes": Range(1, 10_000),
    "max_seconds": Range(0),
    "measured": Range(1, 1_000_000),
    "mixed": Range(0, 100),
    "n": Range(1, 1_000_000),
    "networks": Range(4, 100_000),
    "precision": Range(0, 1, above=True),
    "random": Range(0, 100_000),
    "repeats": Range(1),
    "seconds": Range(0, 3600, above=True),
    "seed": Range(0, 2**31 - 1),
    "seeds": Range(1, 100_000),
    "short_steps": Range(1, 100_000),
    "subnets": Range(1, 5),
    "supernet_epochs": Range(1, 1000),
    "threads": Range(1, 1024),
    "tokens": Range(1, 100_000),
    "tune_epochs": Range(0, 1000),
    "workers": Range(1, 1024),
}
"""What a number may be, by its parameter's name: the same wherever it is asked for."""
