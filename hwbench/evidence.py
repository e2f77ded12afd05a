"""What a report rests on: stored files, read and checked to belong together, and stated as tables.

Nothing here measures: a folder a search wrote (and `verify` added to), the predictor's card, the lookup table
and the device file. Latencies in ms; a number that is not stored is shown as a dash, never as 0.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench import __version__, trials_schema, verification_schema
from hwbench.core import registry, schema
from hwbench.core.errors import UnknownName, UsageError
from hwbench.core.files import read_json
from hwbench.core.workspace import Workspace
from hwbench.device import files as devices
from hwbench.estimator import Fitted, flops_of
from hwbench.limits import LATENCY
from hwbench.lut import table as luts
from hwbench.lut.table import Lut
from hwbench.network.spec import OpSpec, Setting
from hwbench.searcher import PLAIN, UPPER_BOUND
from hwbench.space import lowering, slots
from hwbench.space.architectures import RESULT_NAME, of_values
from hwbench.verifier import certified, searched_with

FILES = (RESULT_NAME, "trials.parquet", "verification.json", "verification.parquet")
"""What a verified search's folder holds."""
ROUNDING = 1e-6
"""Relative; how far one predictor's answer may differ between arrays and single networks."""
SPREADS = {"min": "min_spread", "p50": "median_spread"}
"""A statistic -> the column with its noise."""
ACCURACY = (
    "networks",
    "mean abs. error [%]",
    "bias [%]",
    "p95 error [%]",
    "max. error [%]",
    "share within 5 % [%]",
    "Kendall tau",
)


@dataclass(frozen=True)
class Block:
    """One piece of a section; the kind says which fields are filled."""

    kind: str
    """text, notes, cards, table, picture or code."""
    text: str = ""
    """The paragraph or code, or the caption of a table or picture."""
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    numbers: int = 1
    """Columns of a table from this one on hold numbers."""
    label: str = ""
    """Of a table or picture: what the text refers to it by."""
    name: str = ""
    svg: str = ""

    @property
    def data_uri(self) -> str:
        """The picture, for a page that opens without network."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg.encode()).decode()


Section = tuple[str, list[Block]]
NO_NUMBERS = 99
MISSING = "\N{EN DASH}"


@dataclass(frozen=True)
class Evidence:
    """Every stored file of one report."""

    folder: Path
    document: Mapping[str, Any]
    verification: Mapping[str, Any]
    finalists: Sequence[Mapping[str, Any]]
    """Verified rows with the proxy's `score`, in the search's order: the winner first."""
    random: Sequence[Mapping[str, Any]]
    trials: Mapping[str, np.ndarray]
    """Those that have a score."""
    fitted: Fitted
    """The predictor the search used."""
    lut: Lut
    device: devices.Device | None

    @property
    def about(self) -> dict[str, Any]:
        """What was searched, and how."""
        return dict(self.document["search"])

    @property
    def space(self) -> str:
        """The search space."""
        return str(self.document["space"])

    @property
    def setting(self) -> Setting:
        """What everything was measured under."""
        return Setting(**self.about["setting"])

    @property
    def statistic(self) -> str:
        """The statistic the budget is about."""
        return str(self.about["statistic"])

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """Every verified network."""
        return [*self.finalists, *self.random]

    @property
    def card(self) -> Mapping[str, Any]:
        """What that predictor rests on."""
        return self.fitted.card

    @property
    def certified(self) -> bool:
        """Whether the bounds come from a calibration that saw this space."""
        return certified(self.about, self.fitted, self.space)

    @property
    def bounded(self) -> bool:
        """Whether upper bounds were held against the limits, certified or not."""
        return bool(self.about.get("bound", UPPER_BOUND if self.about["certified"] else PLAIN) == UPPER_BOUND)

    @property
    def same_lut(self) -> bool:
        """Whether the predictor was fitted on the table that is stored now."""
        return bool(self.card["lut"]["sha256"] == sha256(self.lut.path))

    def lut_rows(self) -> dict[OpSpec, Mapping[str, Any] | None]:
        """The space's ops with their rows at this setting; None where the table has no latency."""
        specs = slots.distinct_specs(registry.get("space", self.space))
        found = {spec: self.lut.rows.get((spec.key, self.setting.key)) for spec in specs}
        return {spec: row if row is not None and row["latency_min_ms"] is not None else None for spec, row in found.items()}


def read(folder: Path, place: Workspace) -> Evidence:
    """Every file of a verified search.

    Raises:
        UsageError: a step before the report was not made; the message names its command.
    """
    document = read_json(folder / RESULT_NAME, "search result")
    if "search" not in document:
        raise UsageError(f"{folder / RESULT_NAME} is not a search result. Run: hwbench search")
    again = f"Run: hwbench verify {shlex.quote(str(folder))}"
    if missing := [name for name in FILES if not (folder / name).exists()]:
        raise UsageError(f"{folder} was not verified yet (no {missing[0]}). {again}")
    about, verification = document["search"], read_json(folder / "verification.json", "verification")
    rows = schema.read(folder / "verification.parquet", verification_schema.VERIFICATION)[0].to_pylist()
    known = [(json.loads(row["architecture"]), row) for row in rows]
    finalists = [row for values in document["architectures"] for stored, row in known if stored == values]
    roles = ["winner", *["finalist"] * (len(about["finalists"]) - 1)]
    same = all(verification[name] == about[name] for name in ("statistic", "budget_ms"))
    if not same or [row["role"] for row in finalists] != roles:
        raise UsageError(f"The verification in {folder} is of another search. {again}")
    told = [(row["predicted_ms"], facts["latency_ms"]) for row, facts in zip(finalists, about["finalists"], strict=True)]
    if any(abs(verified - searched) > ROUNDING * searched for verified, searched in told):
        raise UsageError(f"The verification in {folder} asked another predictor than the search did. {again}")
    trials = schema.read(folder / "trials.parquet", trials_schema.TRIALS)[0]
    columns = {name: np.array(trials.column(name).to_pylist(), float) for name in ("latency_ms", "upper_ms", "accuracy")}
    try:
        device = devices.get(about["device"], place.root)
    except UnknownName:
        device = None
    return Evidence(
        folder=folder,
        document=document,
        verification=verification,
        finalists=[{**row, "score": facts["accuracy"]} for row, facts in zip(finalists, about["finalists"], strict=True)],
        random=[row for row in rows if row["role"] == "random"],
        trials={name: column[~np.isnan(columns["accuracy"])] for name, column in columns.items()},
        fitted=searched_with(folder, about, LATENCY, place),
        lut=Lut.read(luts.find_lut(place, about["device"], about["runtime"])),
        device=device,
    )


def ms(value: float | None, like: float | None = None) -> str:
    """A latency with as many digits as its size (or that of `like`) deserves."""
    if value is None:
        return MISSING
    size = abs(value if like is None else like)
    return f"{value:.{2 if size >= 100 else 3 if size >= 0.1 else 4}f}"


def percent(value: float | None, form: str = ".2f") -> str:
    """A share in percent, without the sign."""
    if value is None:
        return MISSING
    text = format(100 * value, form)
    return text if float(text) else format(0.0, form)  # never -0.00


def median(rows: Sequence[Mapping[str, Any]], column: str) -> float | None:
    """Of the values that are there."""
    values = [row[column] for row in rows if row[column] is not None]
    return float(np.median(values)) if values else None


def accuracy_row(label: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells below ACCURACY, after a label."""
    shares = [percent(found[k]) for k in ("mean_abs_error", "bias", "p95_abs_error", "max_abs_error")]
    tau = found["kendall_tau"]
    return (label, str(found["n"]), *shares, percent(found["within_5"], ".0f"), MISSING if tau is None else f"{tau:.3f}")


def machine(e: Evidence) -> Section:
    """Device, environment, noise and predictor."""
    described = _device_rows(e)
    env = e.card["environment"]
    described += [
        ("runtime", f"{env['runtime']} {env['runtime_version']}"),
        ("operating system", f"{env['system']}, kernel {env['kernel']}, {env['machine']}"),
        ("Python", str(env["python"])),
    ]
    source = (
        f"devices/{e.device.path.name}, detected on {e.device.detected_on}"
        if e.device
        else "no device file (hwbench device detect)"
    )
    caption = (
        f"The machine: {source}, and the environment stored with the predictor. Peaks are what numpy reaches: lower bounds."
    )
    errors = [
        accuracy_row(f"{name}, {space}", found)
        for name, part in e.card["statistics"].items()
        for space, found in part["holdout_by_space"].items()
    ]
    sizes = e.card["networks_per_space"]
    held = (
        f"Error of predictor {e.card['predictor']} on held-out networks it was not fitted on ({sizes['fit']} fitted per space)."
    )
    return "Machine, noise and predictor", [
        Block("table", caption, ("property", "value"), described, NO_NUMBERS),
        _noise(e),
        _coefficients(e),
        Block("table", held, ("statistic, space", *ACCURACY), errors),
    ]


def _device_rows(e: Evidence) -> list[tuple[str, str]]:
    env, device = e.card["environment"], e.device
    rows = [
        ("device", str(e.card["device"])),
        ("CPU", f"{env['cpu_model']} ({env['cpu_signature']}), {env['cores']} cores"),
        ("instruction sets", " ".join(env["isa"])),
    ]
    if device is None:
        return rows
    caches = ", ".join(f"{name} {_bytes(size)}" for name, size in device.caches_bytes.items())
    rows += [("caches", caches or MISSING), ("memory", _bytes(device.memory_bytes))]
    for name, unit, what in (("gflops_fp32", "GFLOP/s", "fp32 matrix product"), ("bandwidth_gb_s", "GB/s", "memory copy")):
        found = [(k.split("_")[-2], v) for k, v in device.peaks.items() if k.startswith(name)]
        rows.append(
            (f"peak, {what}", ", ".join(f"{v:g} {unit} with {n} thread{'s' * (n != '1')}" for n, v in found) or MISSING)
        )
    peak = device.peaks.get(f"gflops_fp32_{e.setting.threads}_threads")
    winner = of_values(e.space, e.document["architectures"][:1])
    work = flops_of(lowering.lower(winner.space, winner.population[:, 0])) * e.setting.batch / 1e9
    rate = work / e.finalists[0]["latency_min_ms"] * 1e3
    share = f", {percent(rate / peak, '.0f')} % of the peak above" if peak else ""
    return [
        *rows,
        ("winner's rate", f"{work:.3f} GFLOP in {ms(e.finalists[0]['latency_min_ms'])} ms (min): {rate:.1f} GFLOP/s{share}"),
    ]


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"


def _noise(e: Evidence) -> Block:
    everything = e.lut_rows()
    rows = [row for row in everything.values() if row is not None]

    def line(name: str, found: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        processes = [row["processes"] for row in found]
        worst = [max((row[c] for row in found if row[c] is not None), default=None) for c in SPREADS.values()]
        spreads = [
            text for c, top in zip(SPREADS.values(), worst, strict=True) for text in (percent(median(found, c)), percent(top))
        ]
        span = f"{min(processes, default=0)} to {max(processes, default=0)}"
        doubtful = f"{sum(row['verdict'] != 'stable' for row in found)} of {len(found)}"
        return (name, str(len(found)), span, f"{sum(row['samples'] for row in found):,}", *spreads, doubtful)

    stored = e.card["noise"]
    n = len(e.card["fit_networks"]) + len(e.card["holdout_networks"])
    spread = [percent(stored["min_spread_median"]), percent(stored["min_spread_max"])]
    calibration = ("calibration networks", str(n), MISSING, MISSING, *spread, MISSING, MISSING, MISSING)
    head = ("measured", "rows", "processes", "samples", "min spread, median [%]", "min spread, max. [%]",
            "p50 spread, median [%]", "p50 spread, max. [%]", "not stable")  # fmt: skip
    lacking = len(everything) - len(rows)
    caption = (
        f"Noise. Table rows are those of {e.space}{f' ({lacking} more have no latency)' if lacking else ''}. Noisy: the three "
        "lowest per-process minima did not come as close as asked. A dash: not stored."
    )
    return Block("table", caption, head, [line("table rows", rows), calibration, line("verified networks", e.rows)])


def _coefficients(e: Evidence) -> Block:
    parts = e.card["statistics"]
    terms = list(dict.fromkeys(term for part in parts.values() for term in part["state"].get("coefficients", {})))
    rows = [("constant [ms]", *(_number(part["state"].get("constant_ms")) for part in parts.values()))]
    rows += [
        (f"coefficient of {term}", *(_number(part["state"].get("coefficients", {}).get(term)) for part in parts.values()))
        for term in terms
    ]
    rows += [("margin of the upper bound [%]", *(percent(part["margin"]) for part in parts.values()))]
    caption = (
        f"Predictor {e.card['predictor']}: latency = constant + sum of coefficient x term, each term summed over the network's "
        "ops; rows_ms is the table's min. Further terms stay only if they lower the leave-one-out error (a dash: not taken). "
        "The margin is the upper end of the 90 % interval: 95 of 100 networks stay below."
    )
    return Block("table", caption, ("term", *(f"for {name}" for name in parts)), rows)


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4f}"


def made(e: Evidence) -> Section:
    """Commands, versions, dates and hashes."""
    versions = f"search {e.about['hwbench_version']}, predictor {e.card['hwbench_version']}, report {__version__}"
    changed = "" if e.same_lut else " (not the one stored now)"
    facts = [
        ("hwbench", versions),
        ("predictor", f"{e.fitted.name}, calibrated on {', '.join(e.card['spaces'])}"),
        ("predictor fitted", str(e.card["fitted_at"])),
        ("networks verified", str(e.verification["verified_at"])),
        ("space size", f"{int(e.about['space_size']):,} architectures"),
        ("search", f"{e.about['evaluated']:,} evaluated, {e.about['feasible']:,} within the budget, {e.about['seconds']:g} s"),
        ("predictor fingerprint", str(e.about["predictor"])),
        ("table sha256", str(e.card["lut"]["sha256"]) + changed),
        *((f"{name} sha256", sha256(e.folder / name)) for name in FILES),
    ]
    return "How it was made", [
        Block(
            "text",
            "On the same machine, in a workspace folder, these commands make it again; latencies repeat within their noise.",
        ),
        Block("code", "\n".join(_commands(e))),
        Block(
            "table",
            "Versions, dates (UTC) and hashes of what this report was read from.",
            ("property", "value"),
            facts,
            NO_NUMBERS,
        ),
    ]


def _commands(e: Evidence) -> list[str]:
    about, at, out = e.about, e.setting, e.folder.resolve().name
    where = ["--runtime", about["runtime"], "--batch", str(at.batch), "--threads", str(at.threads), "--dtype", at.dtype]
    primitives = any(name.startswith("primitive") for name in e.verification["accuracy"])
    level = ["--level", "all"] if primitives else []
    search = ["--space", e.space, "--budget-ms", repr(about["budget_ms"]), "--statistic", e.statistic, *where]
    for name in ("strategy", "objective", "gamma", "proxy", "evaluations", "seed"):
        search += [f"--{name}", str(about[name])] if about[name] is not None else []
    for name, most in (about.get("limits") or {}).items():
        search += ["--limit", f"{name}={most!r}"]
    search += [] if e.bounded else ["--plain"]
    search += [] if e.fitted.certifies(e.space) else ["--uncertified"]
    search += ["--out", out]
    seed = ["--seed", str(e.verification["seed"])] if "seed" in e.verification else []
    return [
        "hwbench device detect",
        _command("profile", *(word for name in e.card["spaces"] for word in ("--space", name)), *where, *level),
        _lines(str(e.card["rebuild"]).split()),
        _command("search", *search),
        _command("verify", out, "--random", str(len(e.random)), *seed),
        _command("report", out),
    ]


def _command(*words: str) -> str:
    return _lines(["hwbench", *map(shlex.quote, words)])


def _lines(words: Sequence[str], width: int = 100) -> str:
    """A command over several lines, cut before an option."""
    lines = [words[0]] if words else []
    for i, word in enumerate(words[1:], 1):
        value = words[i + 1] if i + 1 < len(words) else ""
        if word.startswith("--") and len(lines[-1]) + len(word) + len(value) + 2 > width:
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {word}"
    return " \\\n".join(lines)


def sha256(path: Path) -> str:
    """Of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
