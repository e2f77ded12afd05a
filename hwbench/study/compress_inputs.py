"""What a compression is asked and reads, checked before anything long begins; and whose folder it works in."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path

import numpy as np

from hwbench.accuracy.supernet.bert.folder import EncoderConfig, FolderTokenizer, read_config
from hwbench.accuracy.supernet.bert.sentences import Encoded, Sentences, classes_of, encoded, read
from hwbench.core import registry
from hwbench.core.command import extra, hint
from hwbench.core.errors import DataError, UnknownName, UsageError
from hwbench.core.files import fingerprint, read_json, write_json
from hwbench.optimize.cost_kind import LATENCY

SETTINGS = "settings.json"
USUAL_LENGTH, LENGTH_STEP = 90, 8
"""Percentile of the dev sentences' lengths, rounded up to a multiple, at which latencies are told."""
MACS = "macs_m"
SPACE_COSTS = (LATENCY, MACS)
SUPERNET, NETADAPT = "supernet", "netadapt"
METHODS = (SUPERNET, NETADAPT)
"""All subnets trained together and searched, or one cut step by step."""


@dataclass(frozen=True)
class Asked:
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
    method: str = SUPERNET
    tune_epochs: int = 0
    mixed: float | None = None


def teacher_identity(asked: Asked) -> str:
    """Names everything the fine-tuned encoder depends on: it may be taken into a folder that asks something else of it."""
    return fingerprint({name: getattr(asked, name) for name in ("model", "train", "epochs", "seed")})


@dataclass(frozen=True)
class Inputs:
    """What was read before anything began."""

    config: EncoderConfig
    classes: tuple[str, ...]
    tokenizer: FolderTokenizer
    data: Mapping[str, Encoded]
    """train, dev and, where given, test."""


def require_torch() -> None:
    """Raises where the extra was not installed."""
    from importlib.util import find_spec

    missing = [name for name in ("torch", "safetensors", "transformers") if find_spec(name) is None]
    if missing:
        raise UsageError(f"compress needs {' and '.join(missing)}. {hint(extra('compress'))}")


def check_parts(method: str, space_cost: str, importance: str, rule: str, teacher: str, strategy: str | None) -> None:
    """Raises for a name that would be refused after hours only."""
    from hwbench.accuracy.supernet.bert.importance import KINDS
    from hwbench.accuracy.supernet.bert.training import RULES, TEACHERS, check_rule

    for what, asked, known in (
        ("method", method, METHODS),
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


def read_inputs(model: Path, paths: Mapping[str, Path]) -> Inputs:
    """Model and sentences, checked before anything long begins."""
    config = read_config(model)
    tokenizer = FolderTokenizer(model, config.positions, config.vocabulary)
    sentences: dict[str, Sentences] = {name: read(path) for name, path in paths.items()}
    classes = classes_of(*sentences.values())
    data = {name: encoded(each, classes, tokenizer.encode, tokenizer.padding) for name, each in sentences.items()}
    return Inputs(config, classes, tokenizer, data)


def length_of(given: Inputs, tokens: int | None) -> int:
    """Tokens of the text whose latency counts."""
    most = given.config.positions
    if tokens is None:
        usual = float(np.percentile(given.data["dev"].lengths, USUAL_LENGTH))
        return min(most, int(-(-usual // LENGTH_STEP) * LENGTH_STEP))
    if tokens > most:
        raise UsageError(f"--tokens {tokens}: this encoder reads at most {most}.")
    return tokens


def content_of(path: Path) -> str:
    """Names what a file holds."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def claim(folder: Path, asked: Asked) -> None:
    """Makes the folder this job's own, or recognises it as such.

    Raises:
        UsageError: it is a file, or holds another job; the message says in what they differ.
    """
    path, now = folder / SETTINGS, asdict(asked)
    if folder.is_file():
        raise UsageError(f"{folder} is a file; choose another --out.")
    if not path.exists():
        write_json(path, now)
        return
    usual = {field.name: field.default for field in fields(Asked) if field.default is not MISSING}
    stored = read_json(path, "settings of a compression")
    if not isinstance(stored, dict):
        raise DataError(f"{path} holds no settings of a compression; restore it, or choose another --out.")
    before = {**usual, **stored}
    for name, value in now.items():
        if before.get(name) != value:
            raise UsageError(
                f"{folder} was begun with another {name}: {before.get(name)!r}, now {value!r}. Choose another --out."
            )
