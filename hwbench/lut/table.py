"""Lookup tables: one row per (op key, setting), of one runtime on one machine.

luts/<device>/<runtime>.parquet             ops and fused blocks (fold.py writes it)
luts/<device>/<runtime>.networks.parquet    whole networks, measured to calibrate and verify (networks.py)

A table answers for its rows or names what it lacks, with the command that measures it. Latencies in ms.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry, schema
from hwbench.core.errors import DataError, EnvironmentMismatch, MeasurementError, MissingOps, UsageError
from hwbench.core.workspace import Workspace
from hwbench.device import files as devices
from hwbench.device.agent.environment import Environment
from hwbench.device.target import DEFAULT_RUNTIME
from hwbench.lut import schema as lut_schema
from hwbench.network.spec import OpSpec, Setting
from hwbench.runtime.base import SOFTWARE

STATISTICS = {"min": "latency_min_ms", "p50": "latency_median_ms"}
"""A budget's statistic -> the column that holds it."""
INSTRUCTIONS = "instructions"
METRICS = ("latency_min_ms", INSTRUCTIONS)
"""What a usable row has one of."""


@dataclass(frozen=True)
class Lut:
    """Measured latencies of ops under one runtime on one machine."""

    path: Path
    environment: Environment
    rows: Mapping[tuple[str, str], Mapping[str, Any]]
    """(op key, setting key) -> the stored row."""

    @classmethod
    def read(cls, path: Path, local: bool = False) -> Lut:
        """A table from its file.

        Args:
            path: The Parquet file.
            local: Refuse it unless it was measured on this machine under the installed runtime.
        """
        data, footer = schema.read(path, lut_schema.LUT)
        environment = environment_of(footer, path)
        if local:
            check_local(environment, path)
        rows = data.to_pylist()
        return cls(path, environment, {(row["key"], setting_of(row).key): row for row in rows})

    def latency_ms(self, specs: Sequence[OpSpec], setting: Setting, statistic: str) -> np.ndarray:
        """The latency of each op; an op the table lacks is an error that lists all that are missing."""
        return self._column(specs, setting, STATISTICS[statistic])

    def instructions(self, specs: Sequence[OpSpec], setting: Setting) -> np.ndarray:
        """The instructions of each op, likewise."""
        return self._column(specs, setting, INSTRUCTIONS)

    def _column(self, specs: Sequence[OpSpec], setting: Setting, column: str) -> np.ndarray:
        missing = self.missing(specs, setting, column)
        if missing:
            raise missing_ops(missing, setting, self.path, self.path.parent.name, self.path.stem)
        return np.array([self.rows[spec.key, setting.key][column] for spec in specs], float)

    def missing(self, specs: Iterable[OpSpec], setting: Setting, column: str = METRICS[0]) -> list[str]:
        """Keys without a usable row, sorted."""
        usable = {key for (key, at), row in self.rows.items() if at == setting.key and row[column] is not None}
        return sorted({spec.key for spec in specs} - usable)

    def require_timed(self) -> None:
        """Raises unless the table holds latencies of hardware: counts are none, and a software device has no speed."""
        on = str(self.environment.values.get("executes_on", ""))
        if on.startswith(SOFTWARE):
            raise MeasurementError(
                f"{self.path} was measured on a {on}: that proves the path, not a speed. Measure on hardware."
            )
        if self.environment.values.get("emulator"):
            raise MeasurementError(
                f"{self.path} holds instructions, counted under emulation, and no latency. "
                f"Limit them instead: hwbench search --limit instructions_m@{self.path.parent.name}=MILLIONS"
            )

    def coverage(self, specs: Sequence[OpSpec], setting: Setting) -> float:
        """Share of the ops (repeats counted) that the table answers for."""
        missing = set(self.missing(specs, setting))
        return sum(spec.key not in missing for spec in specs) / max(len(specs), 1)

    def merge(self, other: Lut) -> Lut:
        """Both tables' rows; rows of unlike environments are refused, both named.

        Where both have a row, the one with more processes stays.
        """
        refuse_mixing(self.environment, other.environment, str(self.path), str(other.path))
        rows = dict(self.rows)
        for identity, row in other.rows.items():
            if identity not in rows or row["processes"] > rows[identity]["processes"]:
                rows[identity] = row
        return Lut(self.path, self.environment, rows)

    def write(self, path: Path) -> None:
        """Stores the table at a path."""
        facts = {"environment": dict(self.environment.values), "environment_hash": self.environment.hash}
        schema.write(path, lut_schema.LUT, list(self.rows.values()), facts)


def missing_ops(
    missing: Sequence[str],
    setting: Setting,
    source: Path,
    device: str,
    runtime: str,
    space: str | None = None,
    *,
    fitted: bool = False,
    metric: str = "latency",
) -> MissingOps:
    """The error for ops no table (or no predictor fitted on one) covers, with the commands that would change that."""
    shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more (--json lists all)" if len(missing) > 4 else "")
    options = f"{asked(device, runtime, space)} --batch {setting.batch} --threads {setting.threads} --dtype {setting.dtype}"
    then = f", then: hwbench fit {options}" if fitted else ""
    return MissingOps(
        f"{len(missing)} ops have no {metric} at {setting.key} in {source}: {shown}. Run: hwbench profile {options}{then}",
        missing,
    )


def asked(device: str, runtime: str, space: str | None = None) -> str:
    """What to tell `hwbench profile` or `fit` to get a table or predictor; what goes without saying is left out."""
    where = "" if device == devices.local_name() else f"--device {device} "
    how = "" if runtime == DEFAULT_RUNTIME else f"--runtime {runtime} "
    return f"{where}{how}--space {space or 'SPACE'}"


def refuse_mixing(mine: Environment, other: Environment, my_name: str, other_name: str, but: Container[str] = ()) -> None:
    """Raises if results of the two environments must not stand side by side; what they differ in `but` may differ."""
    differences = [each for each in mine.differences(other) if each[0] not in but]
    if differences:
        key, a, b = differences[0]
        raise EnvironmentMismatch(
            f"{my_name} and {other_name} were measured in unlike environments: {key} is {_text(a)} in the first, "
            f"{_text(b)} in the second{f' ({len(differences) - 1} more differ)' if len(differences) > 1 else ''}. "
            "Measure both on one machine with one runtime version."
        )


def check_local(environment: Environment, path: Path) -> None:
    """Raises unless a table's environment is this machine's, now."""
    from hwbench.device.agent import environment as environments

    runtime = registry.get("runtime", str(environment.values["runtime"]))
    here = environments.collect(runtime.name, runtime.version(), runtime.executes_on())
    differences = environment.differences(here)
    if differences:
        key, theirs, mine = differences[0]
        raise EnvironmentMismatch(
            f"{path} was measured on another machine or runtime: {key} is {_text(theirs)} there, {_text(mine)} here. "
            "Name its device with --device to ask about that one, or run: hwbench profile --space SPACE"
        )


def _text(value: Any) -> str:
    return "'" + (" ".join(value) if isinstance(value, list) else str(value)) + "'"


def usable(row: Mapping[str, Any]) -> bool:
    """Whether a row has something measured."""
    return any(row[metric] is not None for metric in METRICS)


def setting_of(row: Mapping[str, Any]) -> Setting:
    """The Setting a stored row was measured under."""
    return Setting(row["dtype"], row["batch"], row["threads"], row["scenario"])


def parse_setting(key: str) -> Setting:
    """The Setting of a journal line's key."""
    dtype, batch, threads, scenario = key.split("-", 3)
    return Setting(dtype, int(batch[1:]), int(threads[1:]), scenario)


def lut_path(workspace: Workspace, device: str, runtime: str) -> Path:
    """Where a workspace keeps the table."""
    return workspace.path("luts", device, f"{runtime}.parquet")


def find_lut(workspace: Workspace, device: str, runtime: str) -> Path:
    """The table of a device and runtime, in the workspace or shipped.

    Raises:
        UsageError: nobody measured that yet.
    """
    found = workspace.find("luts", device, f"{runtime}.parquet")
    if found is None:
        raise UsageError(
            f"There is no table of {runtime} on {device} in {workspace.root}. Run: hwbench profile {asked(device, runtime)}"
        )
    return found


def environment_of(footer: Mapping[str, Any], path: Path) -> Environment:
    """Where a table was measured, if its footer still says so consistently."""
    environment = Environment(footer.get("environment", {}))
    if environment.hash != footer.get("environment_hash"):
        raise DataError(f"{path} was edited after hwbench wrote it (environment differs); restore it or make it again.")
    return environment
