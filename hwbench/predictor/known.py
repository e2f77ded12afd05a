"""What is known of a device, and what can be asked of it: its tables, its predictors, its data sheet.

Cards are read without their arrays and tables by their footers, so that a list of all devices costs little.

A device that cannot be measured from here is not told to be profiled: what exists for it is what can be asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from hwbench.core import registry
from hwbench.core.errors import HwbenchError
from hwbench.core.workspace import Workspace
from hwbench.device.files import Device
from hwbench.network.op.base import op_of
from hwbench.network.work import primitives
from hwbench.predictor import card as cards
from hwbench.predictor.card_types import COLUMNS, GPU, ONNX, SUM, TABLE, TRANSFER, ColumnsCard, MeasuredCard, TableCard
from hwbench.predictor.gpu.latency import FAMILY
from hwbench.predictor.gpu.mapping import MAPPING, Unpriced
from hwbench.predictor.tabular.encode import Encoding
from hwbench.space import slots
from hwbench.space.base import Space

WORDS = {SUM: "sums", TABLE: "regression", TRANSFER: "transfer", GPU: "GPU operators", ONNX: "ONNX files"}
NETWORKS = ".networks"


@dataclass(frozen=True)
class Table:
    """A table of measured ops."""

    runtime: str
    rows: int
    networks: int
    """Whole networks measured beside."""
    metric: str
    """latency, or instructions where they are counted."""
    file: str


@dataclass(frozen=True)
class Predictor:
    """A stored predictor, as its card states it."""

    name: str
    kind: str
    spaces: tuple[str, ...]
    """Whose networks it can price; empty where it knows ops, files or columns that are no genes."""
    runtime: str | None = None
    setting: str | None = None
    target: str | None = None
    """The column a regression tells."""
    unreadable: str | None = None
    """Why its card says nothing."""


@dataclass(frozen=True)
class Known:
    """What is known of a device, and what can be asked of it."""

    tables: tuple[Table, ...]
    predictors: tuple[Predictor, ...]
    data_sheet: bool
    unreachable: str | None
    """Why it cannot be measured from here; None where it can be tried."""
    measure: str | None
    """What measuring it gives, latency or instructions; None where it cannot be measured from here."""
    search: tuple[str, ...] = ()
    """Spaces a search can be made in, by a predictor that saw them."""
    search_uncertified: tuple[str, ...] = ()
    """Spaces that can be searched though no network of them was measured on the device."""
    limit: str | None = None
    """The cost a search for another device can limit."""
    predict: tuple[str, ...] = field(default=())
    """What `hwbench predict` answers, beside networks of those spaces."""

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    def told(self) -> list[str]:
        """What is known, a line for each kind of thing."""
        unit = "rows of instructions" if any(t.metric == "instructions" for t in self.tables) else "rows"
        lines = [f"{unit}: {', '.join(f'{t.runtime} {t.rows}' for t in self.tables)}"] if self.tables else []
        kinds = dict.fromkeys(each.kind for each in self.predictors)
        lines += [_together([each for each in self.predictors if each.kind == kind]) for kind in kinds]
        return [*lines, *(["data sheet"] if self.data_sheet else [])] or ["its file only"]

    def asked(self) -> list[str]:
        """What can be asked, a line each; never to profile what cannot be measured."""
        measure = {"latency": "measure: profile, fit, verify", "instructions": "count instructions: profile"}
        lines = [measure[self.measure]] if self.measure else []
        lines += [f"search: {', '.join(self.search)}"] if self.search else []
        lines += [f"search, uncertified: {', '.join(self.search_uncertified)}"] if self.search_uncertified else []
        lines += [f"limit: {self.limit}"] if self.limit else []
        lines += [f"predict: {', '.join(self.predict)}"] if self.predict else []
        return lines or [f"nothing yet: {self.unreachable}"]


def known_of(device: Device, place: Workspace) -> Known:
    """What workspace and shipped files know of a device."""
    emulated = device.reach == "emulated"
    unreachable = device.unreachable
    metric = "instructions" if emulated else "latency"
    tables = _tables(device.name, place, metric)
    predictors = _predictors(device, place)
    spaces = dict.fromkeys(space for each in predictors if each.kind in (SUM, *COLUMNS) for space in each.spaces)
    return Known(
        tables=tables,
        predictors=predictors,
        data_sheet=bool(device.gpu) or any(name.startswith("stated_") for name in device.peaks),
        unreachable=unreachable,
        measure=None if unreachable else metric,
        search=tuple(spaces),
        search_uncertified=_priced_spaces() if any(each.kind == GPU for each in predictors) else (),
        limit=f"instructions_m@{device.name}" if emulated and tables else None,
        predict=tuple(_other_questions(predictors)),
    )


def _tables(device: str, place: Workspace, metric: str) -> tuple[Table, ...]:
    files = place.each("luts", device, pattern="*.parquet")
    networks = {path.stem.removesuffix(NETWORKS): path for path in files if path.stem.endswith(NETWORKS)}
    return tuple(
        Table(path.stem, _rows(path), _rows(networks[path.stem]) if path.stem in networks else 0, metric, str(path))
        for path in files
        if not path.stem.endswith(NETWORKS)
    )


def _rows(path: Path) -> int:
    """How many a Parquet file has, by its footer; 0 where it cannot be read, which whoever opens it is told."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowException):
        return 0


def _predictors(device: Device, place: Workspace) -> tuple[Predictor, ...]:
    """Those of the device, and for a GPU those of any."""
    folders = (device.name, FAMILY) if device.kind == "gpu" else (device.name,)
    paths = [path for folder in folders for path in place.each("predictors", folder, pattern=f"*/{cards.CARD}")]
    return tuple(_of_card(path) for path in paths)


def _of_card(path: Path) -> Predictor:
    name = f"{path.parents[1].name}/{path.parent.name}"
    try:
        card = cards.read(path)
    except HwbenchError as error:  # one bad card must not hide the others
        return Predictor(name, "unknown", (), unreadable=str(error))
    if isinstance(card, MeasuredCard):
        return Predictor(name, card.kind, card.spaces, card.runtime, card.setting.key)
    if isinstance(card, ColumnsCard):
        return Predictor(name, card.kind, _spaces_of_columns(card), target=card.target)
    return Predictor(name, card.kind, card.spaces)


def _spaces_of_columns(card: ColumnsCard) -> tuple[str, ...]:
    """Registered spaces whose genes are the columns of a table, or those the card states."""
    if card.spaces:
        return card.spaces
    if not isinstance(card, TableCard) or not card.target.endswith("_ms"):
        return ()
    return tuple(name for name in registry.names("space") if _is_of(registry.get("space", name), card.encodings))


def _is_of(space: Space, encodings: Sequence[Encoding]) -> bool:
    """Whether columns and genes have the same names and, where they are words, the same choices."""
    choices: dict[str, set[Any]] = {}
    for gene in space.genes:
        choices.setdefault(gene.name, set()).update(gene.choices)
    columns = {each.column: set(each.levels) for each in encodings}
    return choices.keys() == columns.keys() and all(not levels or levels == choices[name] for name, levels in columns.items())


@lru_cache(maxsize=None)
def _priced_spaces() -> tuple[str, ...]:
    """Registered spaces whose every op some GPU operator stands for."""
    return tuple(name for name in registry.names("space") if _is_priced(registry.get("space", name)))


def _is_priced(space: Space) -> bool:
    parts = {part for spec in slots.distinct_specs(space) for part in primitives(op_of(spec).expand(spec))}
    try:
        for part in parts:
            MAPPING[part.op].calls(part, 1)
    except (KeyError, Unpriced):
        return False
    return True


def _other_questions(predictors: Sequence[Predictor]) -> list[str]:
    """What is predicted beside networks of spaces."""
    columns = [each.name.partition("/")[2] for each in predictors if each.kind in COLUMNS and not each.spaces]
    found = [f"rows of {', '.join(columns)}"] if columns else []
    return found + [WORDS[kind] for kind in (GPU, ONNX) if any(each.kind == kind for each in predictors)]


def _together(predictors: Sequence[Predictor]) -> str:
    """Predictors of one kind in a few words: what they know, or their names."""
    spaces = dict.fromkeys(space for each in predictors for space in each.spaces)
    names = [each.name.partition("/")[2] for each in predictors if not each.spaces]
    word = "unreadable" if predictors[0].unreadable else WORDS.get(predictors[0].kind, predictors[0].kind)
    return f"{word}: {', '.join([*spaces, *names])}"


def stated(stated: Any, name: str) -> str:
    """A card's number on data not seen; the range of its numbers and what they are of, where it states many; or a dash."""
    if (one := _number(stated, name)) is not None:
        return f"{one:.2%}"
    parts = stated.items() if isinstance(stated, dict) else ()
    for split, part in parts:
        if isinstance(part, dict) and (many := list(_numbers(part))):
            return f"{min(many):.2%} to {max(many):.2%} ({split})"
    return "-"


def _number(stated: Any, name: str) -> float | None:
    """Stated as such, under its name, or under `test`, `all` or `min` first."""
    if isinstance(stated, int | float):
        return float(stated)
    if isinstance(stated, dict):
        for key in (name, "test", "all", "min"):
            if (number := _number(stated.get(key), name)) is not None:
                return number
    return None


def _numbers(stated: dict[str, Any]) -> Iterator[float]:
    for value in stated.values():
        if isinstance(value, dict):
            yield from _numbers(value)
        elif isinstance(value, int | float):
            yield float(value)
