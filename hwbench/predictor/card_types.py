"""What the cards of predictors state, one dataclass per kind: the only place that knows their fields.

A card is read once, checked on the way in (a field that is missing or of another type is named, with the file), and passed
on as one of these. Fields of later versions are kept, so that a card that is copied stays what it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hwbench.core import conformal
from hwbench.core.typed_json import Record
from hwbench.network.spec import Setting
from hwbench.predictor.tabular.encode import Encoding

SUM, TABLE, TRANSFER, GPU, ONNX = "op-sum", "table", "transfer", "gpu-ops", "onnx"
RECOVERED = "recovered-lut"
"""Kinds of predictors: sums over a network's ops, a regression over columns of a table, a transfer from other devices, GPU
operators from a data sheet, kernels of ONNX models; and costs of choices recovered from a table, which predict nothing yet."""
COLUMNS = (TABLE, TRANSFER)
"""Those that know the columns of a table, and a space whose genes they are."""


@dataclass(frozen=True, kw_only=True)
class DataFile(Record):
    """A file a predictor was made of."""

    file: str
    """Bare or relative to the folder of tables: never a machine's path."""
    sha256: str | None = None
    rows: int | None = None
    devices: int | None = None
    """How many devices the rows are of, where a transfer learnt from them."""


@dataclass(frozen=True, kw_only=True)
class StoredBand(Record):
    """A conformal band and how it was made."""

    below: float
    above: float
    coverage: float
    n: int
    how: str | None = None

    @property
    def band(self) -> conformal.Band:
        """The band alone."""
        return conformal.Band(self.below, self.above, self.coverage, self.n)


@dataclass(frozen=True, kw_only=True)
class Card(Record):
    """What every card states."""

    schema: int
    kind: str
    device: str | None
    """None: a model of any device of its kind."""
    data: DataFile | tuple[DataFile, ...]
    features: tuple[str, ...] | Mapping[str, Any]
    errors: Mapping[str, Any]
    """On data it has not seen, relative; the parts differ from kind to kind."""
    coverage: Mapping[str, Any] | None
    """How often its intervals held on such data."""
    noise_ceiling: float | Mapping[str, Any] | None
    """The error a perfect predictor would have."""
    rebuild: str
    """The command that makes it again."""
    spaces: tuple[str, ...] = ()
    """Whose networks it was calibrated on, or whose sample its rows are."""
    fitted_at: str | None = None
    hwbench_version: str | None = None
    arrays_sha256: str | None = None

    @property
    def method(self) -> str:
        """How it predicts, in a word: a registered part where it has one."""
        return self.kind

    @property
    def files(self) -> tuple[DataFile, ...]:
        """What it was made of."""
        return (self.data,) if isinstance(self.data, DataFile) else self.data


@dataclass(frozen=True, kw_only=True)
class NetworksPerSpace(Record):
    """How many networks of each space were measured."""

    fit: int
    holdout: int


@dataclass(frozen=True, kw_only=True)
class MeasuredCard(Card):
    """The card of a predictor that was calibrated on networks hwbench measured."""

    device: str
    runtime: str
    setting: Setting
    networks_per_space: NetworksPerSpace
    seed: int
    environment: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class LutFile(Record):
    """The table of ops a sum was fitted on."""

    path: str
    sha256: str
    rows_by_space: Mapping[str, str] | None = None
    """A hash of each space's rows; None in cards of version 1."""


@dataclass(frozen=True, kw_only=True)
class SumStatistic(Record):
    """A sum over ops for one statistic."""

    state: Mapping[str, Any]
    """Of the aggregator."""
    margin: float
    holdout: Mapping[str, Any]
    """Errors on networks it was not fitted on: of all spaces, and of each."""
    holdout_by_space: Mapping[str, Mapping[str, Any]]
    fitted: Mapping[str, Any] | None = None
    baselines: Mapping[str, tuple[float, ...]] | None = None
    band: StoredBand | None = None
    """Not in cards of version 1."""
    band_by_space: Mapping[str, StoredBand] | None = None
    coverage: Mapping[str, Any] | None = None
    noise_ceiling: float | None = None


@dataclass(frozen=True, kw_only=True)
class SumCard(MeasuredCard):
    """Sums over ops, calibrated on networks."""

    predictor: str
    """Registered aggregator."""
    additivity: Mapping[str, Any] | None
    """Why this aggregator was picked; None where it was asked for."""
    fit_networks: tuple[str, ...]
    holdout_networks: tuple[str, ...]
    statistics: Mapping[str, SumStatistic]
    lut: LutFile
    fill: Mapping[str, Any] | None
    """Ops that were modelled, not measured; None where all were measured."""
    noise: Mapping[str, Any]
    """How far repeated measurements of those networks lie apart."""

    @property
    def method(self) -> str:
        """Its aggregator."""
        return self.predictor


@dataclass(frozen=True, kw_only=True)
class OnnxStatistic(Record):
    """The calibration of a model's kernels for one statistic."""

    weights: Mapping[str, float]
    family_doubt: float
    band: StoredBand
    holdout: Mapping[str, Any] | None = None
    unseen_family: Mapping[str, Mapping[str, Any]] | None = None
    coverage: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Kernels(Record):
    """The model of single kernels."""

    rows: int
    error_by_group: Mapping[str, Any]
    stream_ms_per_mb: float
    cache_bytes: int
    state: Mapping[str, Any]
    bound: Mapping[str, Any]
    """What kernels like none that was measured may cost."""
    scenario: str = "back-to-back"
    """How its kernels were measured."""


@dataclass(frozen=True, kw_only=True)
class OnnxCard(MeasuredCard):
    """ONNX models, by their kernels."""

    statistics: Mapping[str, OnnxStatistic]
    kernels: Kernels


@dataclass(frozen=True, kw_only=True)
class Range(Record):
    """Least and largest value of every feature."""

    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ColumnsCard(Card):
    """Predictors that know the columns of somebody's table."""

    device: str
    features: tuple[str, ...]
    target: str
    """The column they tell."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TableCard(ColumnsCard):
    """A regression over columns."""

    encodings: tuple[Encoding, ...]
    range: Range
    regressor: str
    state: Mapping[str, Any]
    band: StoredBand
    band_scaled: bool
    """Whether the band is in units of the regressor's own doubt."""
    seed: int = 0
    rising: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        """Its regressor."""
        return self.regressor


@dataclass(frozen=True, kw_only=True)
class Choice(Record):
    """One place of an architecture: a column, or one entry of a list."""

    column: str
    place: int | None
    levels: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class TransferCard(ColumnsCard):
    """A new device from few measurements of it and many of others."""

    data: tuple[DataFile, ...]
    """The known devices, then the new one."""
    choices: tuple[Choice, ...]
    trust: bool
    reason: str
    unexplained: float | None = None
    nearest: Mapping[str, float] | None = None


@dataclass(frozen=True, kw_only=True)
class GpuCard(Card):
    """GPU operators from a data sheet."""

    features: Mapping[str, Any]
    state: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RecoveredCard(ColumnsCard):
    """Costs of choices, recovered from latencies of whole networks."""

    shared: bool
    constant_ms: float
    exact: bool
    confounded: tuple[tuple[str, ...], ...]
    lut_sha256: str


TYPES: Mapping[str, type[Card]] = {
    SUM: SumCard,
    TABLE: TableCard,
    TRANSFER: TransferCard,
    GPU: GpuCard,
    ONNX: OnnxCard,
    RECOVERED: RecoveredCard,
}
