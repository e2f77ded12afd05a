"""The sections of a report that say how its numbers came about: machine, noise, predictor; commands, versions, hashes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hwbench import __version__
from hwbench.core.command import command
from hwbench.optimize.result import SearchResult
from hwbench.predictor.baselines import flops_of
from hwbench.space import lowering
from hwbench.study.evidence import FILES, Evidence, sha256
from hwbench.study.render import ACCURACY, MISSING, NO_NUMBERS, SPREADS, Block, Section, accuracy_row, median, ms, percent


def machine(e: Evidence) -> Section:
    """Device, environment, noise and predictor."""
    described = _device_rows(e)
    env = e.card.environment
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
        for name, part in e.card.statistics.items()
        for space, found in part.holdout_by_space.items()
    ]
    sizes = e.card.networks_per_space
    held = f"Error of predictor {e.card.predictor} on held-out networks it was not fitted on ({sizes.fit} fitted per space)."
    return "Machine, noise and predictor", [
        Block("table", caption, ("property", "value"), described, NO_NUMBERS),
        _noise(e),
        _coefficients(e),
        Block("table", held, ("statistic, space", *ACCURACY), errors, command=e.card.rebuild),
    ]


def _device_rows(e: Evidence) -> list[tuple[str, str]]:
    env, device = e.card.environment, e.device
    rows = [
        ("device", e.card.device),
        ("CPU", f"{env['cpu_model']} ({env['cpu_signature']}), {env['cores']} cores"),
        ("instruction sets", " ".join(env["isa"])),
    ]
    if device is None:
        return rows
    caches = ", ".join(f"{name} {_bytes(size)}" for name, size in device.caches_bytes.items())
    rows += [("caches", caches or MISSING), ("memory", _bytes(device.memory_bytes))]
    for name, unit, what in (("gflops_fp32", "GFLOP/s", "fp32 matrix product"), ("bandwidth_gb_s", "GB/s", "memory copy")):
        found = [(k.split("_")[-2], v) for k, v in device.undisturbed_peaks.items() if k.startswith(name)]
        rows.append(
            (f"peak, {what}", ", ".join(f"{v:g} {unit} with {n} thread{'s' * (n != '1')}" for n, v in found) or MISSING)
        )
    if device.disturbed:
        rows.append(("peaks not cited", f"measured while disturbed: {'; '.join(dict.fromkeys(device.disturbed.values()))}"))
    peak = device.undisturbed_peaks.get(f"gflops_fp32_{e.setting.threads}_threads")
    winner = e.result.networks
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

    stored = e.card.noise
    n = len(e.card.fit_networks) + len(e.card.holdout_networks)
    spread = [percent(stored["min_spread_median"]), percent(stored["min_spread_max"])]
    calibration = ("calibration networks", str(n), MISSING, MISSING, *spread, MISSING, MISSING, MISSING)
    head = ("measured", "rows", "processes", "samples", "min spread, median [%]", "min spread, max. [%]",
            "p50 spread, median [%]", "p50 spread, max. [%]", "not stable")  # fmt: skip
    lacking = len(everything) - len(rows)
    caption = (
        f"Noise. Table rows are those of {e.space}{f' ({lacking} more have no latency)' if lacking else ''}. Noisy: the three "
        "lowest per-process minima did not come as close as asked. A dash: not stored."
    )
    lines = [line("table rows", rows), calibration, line("verified networks", e.rows)]
    return Block("table", caption, head, lines, command=steps(e)["verify"])


def _coefficients(e: Evidence) -> Block:
    parts = e.card.statistics
    terms = list(dict.fromkeys(term for part in parts.values() for term in part.state.get("coefficients", {})))
    rows = [("constant [ms]", *(_number(part.state.get("constant_ms")) for part in parts.values()))]
    rows += [
        (f"coefficient of {term}", *(_number(part.state.get("coefficients", {}).get(term)) for part in parts.values()))
        for term in terms
    ]
    rows += [("margin of the upper bound [%]", *(percent(part.margin) for part in parts.values()))]
    caption = (
        f"Predictor {e.card.predictor}: latency = constant + sum of coefficient x term, each term summed over the network's "
        "ops; rows_ms is the table's min. Further terms stay only if they lower the leave-one-out error (a dash: not taken). "
        "The margin is the upper end of the 90 % interval: 95 of 100 networks stay below."
    )
    return Block("table", caption, ("term", *(f"for {name}" for name in parts)), rows, command=e.card.rebuild)


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.4f}"


def made(e: Evidence) -> Section:
    """Commands, versions, dates and hashes."""
    versions = f"search {e.result.hwbench_version}, predictor {e.card.hwbench_version}, report {__version__}"
    changed = "" if e.same_lut else " (not the one stored now)"
    facts = [
        ("hwbench", versions),
        ("predictor", f"{e.facts.name}, calibrated on {', '.join(e.card.spaces)}"),
        ("predictor fitted", str(e.card.fitted_at)),
        ("networks verified", str(e.verification["verified_at"])),
        ("space size", f"{int(e.result.space_size):,} architectures"),
        ("search", f"{e.result.evaluated:,} evaluated, {e.result.feasible:,} within the budget, {e.result.seconds:g} s"),
        ("predictor fingerprint", str(e.settings.predictor)),
        ("table sha256", e.card.lut.sha256 + changed),
        *((f"{name} sha256", sha256(e.folder / name)) for name in FILES),
    ]
    return "How it was made", [
        Block(
            "text",
            "On the same machine, in a workspace folder, these commands make it again; latencies repeat within their noise.",
        ),
        Block("code", "\n".join(_lines(each.split(" ")) for each in steps(e).values())),
        Block(
            "table",
            "Versions, dates (UTC) and hashes of what this report was read from.",
            ("property", "value"),
            facts,
            NO_NUMBERS,
        ),
    ]


def made_from(result: SearchResult, folder: Path, more: Sequence[tuple[str, str]] = ()) -> Section:
    """The same for a search of which no latency was measured."""
    out = folder.resolve().name
    facts = [
        ("hwbench", f"search {result.hwbench_version}, report {__version__}"),
        ("search", f"{result.evaluated:,} evaluated, {result.feasible:,} within the budget, {result.seconds:g} s"),
        *more,
        ("space size", f"{int(result.space_size):,} architectures"),
        ("winner", json.dumps(result.networks.values[0])),
    ]
    commands = [result.settings.command(out), command("verify", out), command("report", out)]
    return "How it was made", [
        Block("code", "\n".join(_lines(each.split(" ")) for each in commands)),
        Block("table", "What this report was read from.", ("property", "value"), facts, NO_NUMBERS),
    ]


def steps(e: Evidence) -> dict[str, str]:
    """Step -> the command that makes it again, in the order in which they are run."""
    at, out = e.setting, e.folder.resolve().name
    primitives = any(name.startswith("primitive") for name in e.verification["accuracy"])
    profile = command(
        "profile", space=list(e.card.spaces), runtime=e.settings.runtime, batch=at.batch, threads=at.threads, dtype=at.dtype,
        level="all" if primitives else None,
    )  # fmt: skip
    return {
        "detect": "hwbench device detect",
        "profile": profile,
        "fit": e.card.rebuild,
        "search": e.settings.command(out, not e.facts.certified),
        "verify": command("verify", out, random=len(e.random), seed=e.verification.get("seed")),
        "report": command("report", out),
    }


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
