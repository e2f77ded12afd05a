"""Sentences with labels from a TSV of anyone's own, as token ids, in batches of like length.

    sentence<TAB>label                       or       sentence1<TAB>sentence2<TAB>label

Columns are found by their names; others are passed over. Nothing is quoted. Labels are any strings or numbers, but names of
classes: scores, of which every sentence has one of its own, are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hwbench.core.errors import UsageError

SINGLE, PAIR, LABEL = ("sentence",), ("sentence1", "sentence2"), "label"
SCORES = 20
"""Labels with fractions that are still taken as classes (0.5, 1, 1.5 ...); more of them are scores."""
CHUNK = 50
"""Batches whose sentences are sorted by length together: enough for little padding, few enough for order to stay random."""

Encode = Callable[[Sequence[tuple[str, ...]]], list[list[int]]]
"""Token ids of sentences or pairs, the special tokens included, nothing padded."""


@dataclass(frozen=True)
class Sentences:
    """What a file holds."""

    path: Path
    texts: tuple[tuple[str, ...], ...]
    """One or two per row."""
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels there are: numbers by size, anything else by the alphabet."""
        return tuple(sorted(set(self.labels), key=_rank))


def _rank(label: str) -> tuple[int, float, str]:
    try:
        value = float(label)
    except ValueError:
        value = math.nan
    return (0, value, label) if math.isfinite(value) else (1, 0.0, label)  # "nan" as a number would have no place in an order


def read(path: str | Path) -> Sentences:
    """The sentences of a TSV.

    Raises:
        UsageError: it is not there, has other columns, or a line that is not whole; the message names the line.
    """
    place = Path(path)
    try:
        lines = place.read_text(encoding="utf-8-sig").split("\n")  # splitlines would break at characters inside sentences
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise UsageError(f"Cannot read the sentences of {place}: {reason}.") from None
    if lines == [""]:
        raise UsageError(f"{place} is empty.")
    header = lines[0].rstrip("\r").split("\t")
    columns = next((names for names in (SINGLE, PAIR) if {*names, LABEL} <= set(header)), None)
    if columns is None:
        raise UsageError(
            f"{place} starts with the columns {', '.join(header)[:200]}; it needs a header with sentence (or sentence1 and "
            "sentence2) and label, separated by tabs."
        )
    at, label = [header.index(name) for name in columns], header.index(LABEL)
    rows = [(number, line.rstrip("\r").split("\t")) for number, line in enumerate(lines[1:], 2) if line.strip()]
    for number, cells in rows:
        if len(cells) != len(header):
            raise UsageError(f"{place}, line {number}: {len(cells)} columns, the header has {len(header)}.")
        if not cells[label].strip():
            raise UsageError(f"{place}, line {number}: the label is empty.")
    if not rows:
        raise UsageError(f"{place} has a header and no sentences.")
    texts = tuple(tuple(cells[i] for i in at) for _, cells in rows)
    return Sentences(place, texts, tuple(cells[label].strip() for _, cells in rows))


def classes_of(train: Sentences, *others: Sentences) -> tuple[str, ...]:
    """The classes, in the order of the logits.

    Raises:
        UsageError: there is one class only, labels are no classes, or a file has a label, or a number of sentences per row,
            that `train` lacks.
    """
    classes = train.classes
    if len(classes) < 2:
        raise UsageError(f"All sentences of {train.path} are labelled '{classes[0]}'; at least two classes are needed.")
    if 2 * len(classes) > len(train):
        raise UsageError(
            f"{train.path} has {len(classes)} labels for {len(train)} sentences ({', '.join(classes[:5])}, ...): a class needs "
            "at least two sentences on average."
        )
    ranks = [_rank(label) for label in classes]
    if len(classes) > SCORES and all(kind == 0 for kind, *_ in ranks) and any(value % 1 for _, value, _ in ranks):
        raise UsageError(
            f"The labels of {train.path} are scores: {len(classes)} different numbers ({', '.join(classes[:5])}, ...). Classes "
            "are learnt here, no scores: round them, so that a number stands for a class."
        )
    for other in others:
        foreign = [label for label in other.classes if label not in classes]
        if foreign:
            raise UsageError(
                f"{other.path} has the label '{foreign[0]}', which {train.path} has not; its labels are "
                f"{', '.join(classes[:20])}."
            )
        if len(other.texts[0]) != len(train.texts[0]):
            raise UsageError(
                f"{other.path} has {len(other.texts[0])} sentences per row, {train.path} has {len(train.texts[0])}."
            )
    return classes


@dataclass(frozen=True)
class Encoded:
    """Sentences as a network reads them."""

    ids: tuple[np.ndarray, ...]
    labels: np.ndarray
    """int64: places in the classes."""
    padding: int
    """The id that fills up a batch; it is masked."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of every sentence."""
        return np.array([len(each) for each in self.ids])

    def batch(self, rows: Sequence[int] | np.ndarray) -> Batch:
        """Some rows, filled up to the longest."""
        width = max(len(self.ids[row]) for row in rows)
        ids, mask = np.full((len(rows), width), self.padding, np.int64), np.zeros((len(rows), width), np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(self.ids[row])], mask[i, : len(self.ids[row])] = self.ids[row], 1
        return Batch(np.asarray(rows), ids, mask, self.labels[rows])

    def epoch(self, size: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Rows of every batch of an epoch: all sentences once, in an order of their own, like lengths together."""
        order, batches = rng.permutation(len(self)), []
        lengths = self.lengths
        for start in range(0, len(order), size * CHUNK):
            chunk = order[start : start + size * CHUNK]
            chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
            batches += [chunk[at : at + size] for at in range(0, len(chunk), size)]
        return [batches[i] for i in rng.permutation(len(batches))]

    def in_order(self, size: int) -> Iterator[Batch]:
        """All sentences once, the shortest first."""
        order = np.argsort(self.lengths, kind="stable")
        return (self.batch(order[at : at + size]) for at in range(0, len(order), size))


@dataclass(frozen=True)
class Batch:
    """Sentences of one step."""

    rows: np.ndarray
    ids: np.ndarray
    mask: np.ndarray
    labels: np.ndarray


def encoded(sentences: Sentences, classes: Sequence[str], encode: Encode, padding: int) -> Encoded:
    """Sentences as token ids and places in the classes."""
    place = {label: i for i, label in enumerate(classes)}
    ids = tuple(np.array(each, np.int64) for each in encode(sentences.texts))
    return Encoded(ids, np.array([place[label] for label in sentences.labels], np.int64), padding)
