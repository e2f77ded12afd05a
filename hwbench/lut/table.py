"""Lookup tables: one row per (op key, setting), of one runtime on one machine.

luts/<device>/<runtime>.parquet             ops and fused blocks (fold.py writes it)
luts/<device>/<runtime>.networks.parquet    whole networks, measured to calibrate and verify (networks.py)

A table answers for its rows or names what it lacks, with the command that measures it. Latencies in ms.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry, schema
from hwbench.core.command import command, form, hint
from hwbench.core.errors import DataError, EnvironmentMismatch, MeasurementError, MissingOps, UsageError
from hwbench.device.agent.environment import Environment
from hwbench.device.releases import IS
from hwbench.device.target import Target
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
    def read(cls, path: Path) -> Lut:
        """A table from its file."""
        data, footer = schema.read(path, lut_schema.LUT)
        rows = data.to_pylist()
        return cls(path, environment_of(footer, path), {(row["key"], setting_of(row).key): row for row in rows})

    @classmethod
    def of(cls, target: Target, spaces: Sequence[str] = ()) -> Lut:
        """The table of a target, in its workspace or shipped; `spaces` are for the errors.

        Raises:
            UsageError: nobody measured that yet.
            EnvironmentMismatch: asked for as `local`, it was measured on another machine or runtime version.
        """
        table = cls.read(find_lut(target, spaces))
        if target.local:
            check_local(table.environment, table.path, how_to_measure(target, spaces))
        return table

    @property
    def settings(self) -> list[str]:
        """The keys of all settings that it has rows of, sorted."""
        return sorted({at for _, at in self.rows})

    def row(self, key: str, setting: Setting) -> Mapping[str, Any] | None:
        """One stored row, measured or failed; None where there is none."""
        return self.rows.get((key, setting.key))

    def rows_at(self, setting: Setting) -> dict[str, Mapping[str, Any]]:
        """Op key -> row, of every row at a setting."""
        return {key: row for (key, at), row in self.rows.items() if at == setting.key}

    def values(self, setting: Setting, column: str = METRICS[0]) -> dict[str, float]:
        """Op key -> number, of every row at a setting that has one in that column."""
        return {key: float(row[column]) for key, row in self.rows_at(setting).items() if row[column] is not None}

    def of_nodes(self, specs: Sequence[OpSpec], setting: Setting, column: str = METRICS[0]) -> dict[str, float]:
        """Op key -> number, of those ops that have one; one with a number format of its own has the row of that format."""
        found = {}
        for spec in specs:
            row = self.row(spec.in_format(None).key, setting.of_node(spec))
            if row is not None and row[column] is not None:
                found[spec.key] = float(row[column])
        return found

    def column(
        self, specs: Sequence[OpSpec], target: Target, column: str = METRICS[0], spaces: Sequence[str] = ()
    ) -> np.ndarray:
        """The number of each op.

        Args:
            specs: The ops.
            target: Whose table this is: its setting is looked up, and errors tell how to measure what is missing.
            column: The column of the table.
            spaces: The search spaces the ops are of, where that is known.

        Raises:
            MissingOps: ops without such a number; the message lists them.
        """
        known = self.of_nodes(specs, target.setting, column)
        missing = sorted({spec.key for spec in specs} - set(known))
        if missing:
            metric = column if column == INSTRUCTIONS else "latency"
            raise missing_ops(missing, target, self.path, spaces, metric=metric)
        return np.array([known[spec.key] for spec in specs], float)

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
                f"A search can limit them, in millions, with the option --limit and the cost "
                f"instructions_m@{self.path.parent.name}."
            )

    def write(self, path: Path) -> None:
        """Stores the table at a path."""
        facts = {"environment": dict(self.environment.values), "environment_hash": self.environment.hash}
        schema.write(path, lut_schema.LUT, list(self.rows.values()), facts)


def missing_ops(
    missing: Sequence[str],
    target: Target,
    source: Path,
    spaces: Sequence[str] = (),
    *,
    fitted: bool = False,
    metric: str = "latency",
) -> MissingOps:
    """The error for ops no table (or no predictor fitted on one) covers, with the commands that would change that."""
    shown = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more (--json lists all)" if len(missing) > 4 else "")
    return MissingOps(
        f"{len(missing)} ops have no {metric} at {target.setting.key} in {source}: {shown}. "
        f"{how_to_measure(target, spaces, fit=fitted)}",
        missing,
    )


def how_to_measure(target: Target, spaces: Sequence[str] = (), *, fit: bool = False, set_up: bool = False) -> str:
    """The sentence that ends an error: the command that measures a table of the target and, if asked, the one that sets the
    device up before and the one that fits the table after.

    Where nobody knows which space is meant, or the device cannot be measured, it says so: a command is there to be pasted.
    """
    if target.out_of_reach:
        return target.out_of_reach
    verbs = ("profile", "fit") if fit else ("profile",)
    first = [command("device setup", target.device, workspace=target.workspace.option)] if set_up else []
    if spaces:
        return hint(*first, *(command(verb, space=list(spaces), **target.options) for verb in verbs))
    written = " && ".join([*first, *(command(verb, space="SPACE", **target.options) for verb in verbs)])
    return f"Measure a search space (hwbench list spaces has their names), {form(written)}"


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


def check_local(environment: Environment, path: Path, todo: str) -> None:
    """Raises unless what is stored at a path was measured on this machine as it is now.

    Args:
        environment: Where it was measured.
        path: The table or card, for the error.
        todo: The end of the error: how it is made here.
    """
    from hwbench.device.agent import environment as environments

    if not isinstance(name := environment.values.get("runtime"), str):
        raise DataError(f"{path} does not say with which runtime it was measured. {todo}")
    runtime = registry.get("runtime", name)
    stated = environment.values.get("runtime_version")
    is_release = path.name.startswith(f"{name}{IS}{stated}.")  # which was asked for by its name, whatever is installed
    here = environments.collect(runtime.name, str(stated) if is_release else runtime.version(), runtime.executes_on())
    differences = environment.differences(here)
    if differences:
        key, theirs, mine = differences[0]
        raise EnvironmentMismatch(
            f"{path} was measured on another machine or runtime: {key} is {_text(theirs)} there, {_text(mine)} here. "
            f"Name its device with --device to ask about that one, or measure here. {todo}"
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


def lut_path(target: Target) -> Path:
    """Where a workspace keeps the table."""
    return target.workspace.path("luts", target.device, f"{target.runtime}.parquet")


def find_lut(target: Target, spaces: Sequence[str] = ()) -> Path:
    """The table of a device and runtime, in the workspace or shipped; `spaces` are for the error.

    Raises:
        UsageError: nobody measured that yet.
    """
    path = target.workspace.find("luts", target.device, f"{target.runtime}.parquet")
    if path is None:
        raise UsageError(
            f"There is no table of {target.runtime} on {target.device} in {target.workspace.root}. "
            f"{how_to_measure(target, spaces)}"
        )
    return path


def environment_of(footer: Mapping[str, Any], path: Path) -> Environment:
    """Where a table was measured, if its footer still says so consistently."""
    values = footer.get("environment")
    environment = Environment(values if isinstance(values, dict) else {})
    if environment.hash != footer.get("environment_hash") or not isinstance(values, dict):
        raise DataError(f"{path} was edited after hwbench wrote it (environment differs); restore it or make it again.")
    return environment
