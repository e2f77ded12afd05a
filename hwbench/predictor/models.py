"""Which stored predictor answers for a space on a device, and what a search keeps of it.

Asked in this order: a sum of table rows calibrated on the space; a regression or a transfer whose columns are the space's
genes; GPU operators from a data sheet. What comes last is never certified, and says so. A sum calibrated on other spaces, and
after it a predictor of ONNX models by their kernels, answer only when an uncertified answer was asked for, because there a
command exists that would mend it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hwbench.core.command import command, hint
from hwbench.core.errors import DataError, UnknownName, UsageError
from hwbench.core.workspace import Workspace
from hwbench.device import files as devices
from hwbench.device.target import DEFAULT_RUNTIME, Target
from hwbench.lut.table import Lut, how_to_measure
from hwbench.network.spec import Setting
from hwbench.predictor import card as cards
from hwbench.predictor import onnx_latency
from hwbench.predictor import space_latency as sums
from hwbench.predictor.base import LatencyModel, Refusal, SpaceLatency
from hwbench.predictor.card_types import Card, GpuCard, OnnxCard, SumCard, TableCard, TransferCard
from hwbench.predictor.few_shot.latency import TransferLatency
from hwbench.predictor.gpu import latency as gpu_latency
from hwbench.predictor.gpu.latency import GpuLatency
from hwbench.predictor.onnx_latency import OnnxLatency
from hwbench.predictor.space_latency import Fitted
from hwbench.predictor.tabular.latency import TabularLatency
from hwbench.space.base import Space

T = TypeVar("T")
KEPT = "predictors"
"""Folder of a search that keeps the predictors it used, each under its fingerprint."""


@dataclass(frozen=True)
class Chosen:
    """The predictor that answers for a space, with the files it comes from."""

    folder: Path
    card: Card
    model: LatencyModel
    latency: SpaceLatency


def choose(space: Space, statistic: str, target: Target, uncertified: bool = False) -> Chosen:
    """The predictor to ask about a space.

    Args:
        space: Search space.
        statistic: min or p50.
        target: Device, runtime, setting, and where predictors are looked for, before the shipped ones.
        uncertified: Take a sum that was calibrated on other spaces, too.

    Raises:
        UsageError: nothing here knows this space on this device; the message says what is known instead, and what to do.
        MissingOps: the only predictor lacks ops of the space.
    """
    stored = sums.stored_sums(target)
    refusals: list[Refusal] = []
    for chosen in _knowing(space, statistic, stored, target, refusals):
        return chosen
    if stored and uncertified:
        every = [_of(each, sums.open_sum(*each, target), space, statistic) for each in stored]
        known = [each for each in every if isinstance(each, Chosen)]
        for chosen in known or _by_kernels(space, statistic, target, refusals):
            return chosen
        raise next(each for each in every if isinstance(each, Refusal)).raised()
    if stored:
        raise sums.never_saw(space.name, target, [card for _, card in stored])
    if uncertified:
        for chosen in _by_kernels(space, statistic, target, refusals):
            return chosen
    for chosen in _from_data_sheet(space, statistic, target, refusals):
        return chosen
    raise _nothing(space, target, refusals)


def _knowing(
    space: Space,
    statistic: str,
    stored: Sequence[tuple[Path, SumCard]],
    target: Target,
    refusals: list[Refusal],
) -> Iterator[Chosen]:
    """Sums calibrated on the space, then tables whose columns are its genes, samples of it first; why not is noted."""
    for folder, card in stored:
        if space.name in card.spaces:
            yield _answer(_of((folder, card), sums.open_sum(folder, card, target), space, statistic))
    columns = sorted(_of_columns(target), key=lambda each: space.name not in each[1].spaces)
    for folder, known in columns:
        found = _of((folder, known), _open_columns(folder, known, target), space, statistic)
        if isinstance(found, Chosen) and (target.runtime, target.setting) != (DEFAULT_RUNTIME, Setting()):
            found = Refusal(
                f"{target.device}/{folder.name} knows one setting only, its table's: "
                "leave out --runtime, --dtype, --batch, --threads"
            )
        yield from _unless_refused(found, refusals)


def _of_columns(target: Target) -> list[tuple[Path, TableCard | TransferCard]]:
    """(folder, card) of regressions over columns and of transfers."""
    paths = target.workspace.each("predictors", target.device, pattern=f"*/{cards.CARD}")
    read = [(path.parent, cards.read(path.parent)) for path in paths]
    return [(folder, card) for folder, card in read if isinstance(card, TableCard | TransferCard)]


def _open_columns(folder: Path, card: TableCard | TransferCard, target: Target, name: str = "") -> LatencyModel:
    if isinstance(card, TableCard):
        return TabularLatency.open(folder, card, target, name)
    return TransferLatency.open(folder, card, target, name)


def _by_kernels(space: Space, statistic: str, target: Target, refusals: list[Refusal]) -> Iterator[Chosen]:
    """Networks as the ONNX models they are exported to, where such a predictor was fitted for the target."""
    stored = onnx_latency.find(target)
    if stored is not None:
        yield from _unless_refused(_of(stored, OnnxLatency.open(*stored, target), space, statistic), refusals)


def _from_data_sheet(space: Space, statistic: str, target: Target, refusals: list[Refusal]) -> Iterator[Chosen]:
    """GPU operators, where the device file is a GPU's."""
    stored = gpu_latency.find(target)
    if stored is not None:
        yield from _unless_refused(_of(stored, GpuLatency.open(*stored, target), space, statistic), refusals)


def _unless_refused(found: Chosen | Refusal, refusals: list[Refusal]) -> Iterator[Chosen]:
    """The one that answers, if it does; why not is noted."""
    if isinstance(found, Refusal):
        refusals.append(found)
    else:
        yield found


def of_space(model: LatencyModel, space: Space, statistic: str) -> SpaceLatency:
    """What a model knows of a space.

    Raises:
        HwbenchError: nothing; the message says why.
    """
    return _answer(model.for_space(space, statistic))


def _answer(found: T | Refusal) -> T:
    """What was found, unless it is a refusal."""
    if isinstance(found, Refusal):
        raise found.raised()
    return found


def _of(stored: tuple[Path, Card], model: LatencyModel, space: Space, statistic: str) -> Chosen | Refusal:
    found = model.for_space(space, statistic)
    return found if isinstance(found, Refusal) else Chosen(*stored, model, found)


def _nothing(space: Space, target: Target, refusals: Sequence[Refusal]) -> UsageError:
    """What is known of the device instead; advice to profile only where that can be done and would tell a latency."""
    try:
        device = devices.get(target.device, target.workspace.root)
    except UnknownName:  # this machine, which nobody described yet
        device = None
    unreachable = device.unreachable if device is not None else None
    counts = device is not None and device.reach == "emulated"
    if not unreachable and not refusals and not counts:
        return sums.nothing_fitted(target, space.name)
    paths = target.workspace.each("predictors", target.device, pattern=f"*/{cards.CARD}")
    known = ", ".join(f"{target.device}/{path.parent.name}" for path in paths) or "no predictor of it"
    reasons = f"{refusals[0].reason}{'' if len(refusals) == 1 else '; nor can the others'}" if refusals else ""
    end = f"but it can be measured. {how_to_measure(target, [space.name], fit=True)}"
    if counts:
        end = f"and it is emulated: instructions are counted there, time means nothing; limit instructions_m@{target.device}."
    elif unreachable:
        end = f"and it cannot be measured from here: {unreachable}"
    return UsageError(
        f"Nothing tells latencies of {space.name} on {target.device}. There is {known}"
        f"{f' ({reasons})' if reasons else ''}, {end}"
    )


def stale(model: LatencyModel, space: str, place: Workspace) -> str | None:
    """One sentence, with the command, if the table's rows of a space are not those a sum was fitted on; else None."""
    if not isinstance(model, Fitted):
        return None
    card = model.card
    path = place.find("luts", card.device, f"{card.runtime}.parquet")
    before = (card.lut.rows_by_space or {}).get(space)
    if path is None or cards.data_of(path, 0)["sha256"] == card.lut.sha256:
        return None
    if before is not None and before == sums.rows_of(space, Lut.read(path), model.target.setting):
        return None
    sizes = card.networks_per_space
    again = {"networks": sizes.fit, "holdout": sizes.holdout, "seed": card.seed, "stored": True, "workspace": place.option}
    return (
        f"The table of {card.device} is newer than this predictor (fitted {str(card.fitted_at)[:10]}). "
        f"{hint(sums.fit_command(model.target, card.spaces, command, **again))}"
    )


def keep(chosen: Chosen, folder: Path) -> None:
    """Copies a predictor into the folder of a search that uses it: what it says later must be what it said then."""
    cards.copy(chosen.folder, chosen.card, folder / KEPT / chosen.latency.facts.fingerprint)


def kept(folder: Path, used: Mapping[str, Any], space: Space, statistic: str, target: Target) -> Chosen:
    """The predictor a search used, by its fingerprint: the search's own copy or, in folders of older versions, the stored one.

    Args:
        folder: Of the search.
        used: What the search says of it (`Facts`); older versions state the fingerprint alone.
        space: What was searched.
        statistic: Likewise.
        target: Likewise.

    Raises:
        UsageError: it is gone; another one would tell other numbers.
        DataError: the copy was edited.
    """
    asked = used["fingerprint"]
    if (folder / KEPT / asked / cards.CARD).exists():
        return _copy(folder / KEPT / asked, used, space, statistic, target)
    for at, card in sums.stored_sums(target):
        opened = sums.open_sum(at, card, target)
        if opened.fingerprint == asked:
            return _answer(_of((at, card), opened, space, statistic))
    raise UsageError(
        f"The predictor {folder} was searched with ({asked}) is gone: it was fitted again since, and {folder} keeps no copy. "
        "Search again with another --out."
    )


def _copy(copy: Path, used: Mapping[str, Any], space: Space, statistic: str, target: Target) -> Chosen:
    """The search's own copy, if it still is what the search used."""
    card, edited = cards.read(copy), "is not the predictor this search used (edited?). Search again in another --out."
    try:
        cards.read_arrays(copy, card)
    except DataError:  # which tells how to make a stored predictor again, not a copy
        raise DataError(f"{copy / cards.ARRAYS} {edited}") from None
    found = _answer(_of((copy, card), _open(copy, card, target, used.get("name", "")), space, statistic))
    facts = found.latency.facts
    if facts.fingerprint != used["fingerprint"] or facts.card_sha256 != used.get("card_sha256", facts.card_sha256):
        raise DataError(f"{copy / cards.CARD} {edited}")
    return found


def _open(folder: Path, card: Card, target: Target, name: str) -> LatencyModel:
    """The model behind a card, whatever its kind."""
    if isinstance(card, SumCard):
        return sums.open_sum(folder, card, target, name)
    if isinstance(card, TableCard | TransferCard):
        return _open_columns(folder, card, target, name)
    if isinstance(card, OnnxCard):
        return OnnxLatency.open(folder, card, target, name)
    if isinstance(card, GpuCard):
        return GpuLatency.open(folder, card, target, name)
    raise DataError(f"{folder / cards.CARD} is the card of a {card.kind} predictor, which tells no latency of a space.")
