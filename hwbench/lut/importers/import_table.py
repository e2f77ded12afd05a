"""Lookup tables others published, brought into our form with where they come from.

    hwbench table import mobile_trim.yaml --as once-for-all --device pixel-1 --runtime tflite --source "ProxylessNAS, MIT"

Published latencies (ms) are means over runs, so they go to `latency_mean_ms`: no level and no median of ours was taken. A
published key becomes the key of an op of ours only where that op is exactly the published layer; any other is kept as
`published(layer=...,style=...)` with all its numbers. Such a row can be looked up (`latencies_ms`) and compared, but no op
stands for it: to write it as a model is an error. A row's `reason` has the published key, word for word.

Styles (the layers are those of the public code, named at FORMS)
    once-for-all  YAML `KEY: {mean, std, count}`: once-for-all (Cai et al., ICLR 2020), ProxylessNAS (Cai et al., ICLR 2019)
    fasterseg     NPY, a dict of KEY -> ms saved by numpy (Chen et al., ICLR 2020)
and either as Parquet; hwbench/lut/importers/published.py reads all of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry, schema
from hwbench.core.errors import DataError, MissingOps, UnknownName, UsageError
from hwbench.core.workspace import Workspace
from hwbench.device import files as devices
from hwbench.device.agent.environment import Environment
from hwbench.device.target import Target
from hwbench.lut import schema as lut_schema
from hwbench.lut import table as luts
from hwbench.lut.importers.published import Published, read
from hwbench.lut.key_columns import key_columns
from hwbench.lut.table import Lut
from hwbench.network import work as ops
from hwbench.network.spec import OpSpec, Setting

PUBLISHED = "published"
"""Op of every row that is no op of ours; no such op is registered."""
AS_PUBLISHED = "as published"
MEAN = "latency_mean_ms"


def _form(text: str) -> re.Pattern[str]:
    """A key's form: {name} stands for a whole number."""
    return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>0|[1-9][0-9]*)", text))


_MAPS = "input:{in_height}x{in_width}x{in_channels}-output:{out_height}x{out_width}x{out_channels}"
_SIDES = "H{height}_W{width}"
_CHANNELS = "Cin{in_channels}_Cout{out_channels}"
FORMS: dict[str, tuple[re.Pattern[str], ...]] = {
    # ofa/nas/efficiency_predictor/latency_lookup_table.py of mit-han-lab/once-for-all; `expand` is a ratio without se and hs
    # (ProxylessNAS: ReLU6), the number of hidden channels with them (MobileNetV3: ReLU or h-swish, batch norms folded).
    "once-for-all": (
        _form(f"(?P<layer>Conv|Conv_1|Conv_2|AvgPool2D)-{_MAPS}"),
        _form("(?P<layer>Logits)-input:{in_height}x{in_width}x{in_channels}-output:{out_channels}"),
        _form(
            f"(?P<layer>expanded_conv)-{_MAPS}"
            "-expand:{expand}-kernel:{kernel}-stride:{stride}-idskip:{idskip}(?:-se:{se}-hs:{hs})?"
        ),
    ),
    # search/operations.py and search/seg_oprs.py of VITA-Group/FasterSeg; ReLU stands behind every convolution.
    "fasterseg": (
        _form(f"(?P<layer>BasicResidual(?:_downup_)?[12]x)_{_SIDES}_{_CHANNELS}_stride{{stride}}_dilation{{dilation}}"),
        _form(f"(?P<layer>FactorizedReduce)_{_SIDES}_{_CHANNELS}_stride{{stride}}"),
        _form(f"(?P<layer>ConvNorm)_{_SIDES}_{_CHANNELS}_kernel{{kernel}}_stride{{stride}}"),
        _form(f"(?P<layer>head)_{_SIDES}_{_CHANNELS}"),
        _form(f"(?P<layer>ff)_{_SIDES}_C{{channels}}"),
    ),
}


@dataclass(frozen=True)
class Imported:
    """What an import stored."""

    path: Path
    setting: Setting
    rows: int
    mapped: Mapping[str, int]
    """Op of ours -> rows that became one."""
    kept: Mapping[str, int]
    """Published layer -> rows kept under their published key."""
    known_device: bool
    """Whether the device has a file."""


def import_table(
    file: str | Path,
    style: str,
    device: str,
    source: str,
    runtime: str = PUBLISHED,
    setting: Setting = Setting(),
    where: Mapping[str, str] | None = None,
    out: str | Path | None = None,
    workspace: str | Path = ".",
) -> Imported:
    """Stores a published table as a LUT: every row of it, or none.

    Args:
        file: .yaml, .npy or .parquet.
        style: How its keys are written, one of FORMS.
        device: What it was measured on; need not have a device file.
        source: Whose it is and under which licence, for the footer.
        runtime: What it was measured with, as its makers say.
        setting: Number format, batch and threads, as its makers say.
        where: Of a Parquet file only rows with these values.
        out: The file to write, if not luts/<device>/<runtime>.parquet of the workspace.
        workspace: Where the table goes.

    Raises:
        UsageError: a name that cannot be one, a file that is there already, or an unknown style.
        DataError: the file is damaged, or has a key of no known form; its place is named.
    """
    _check(device, runtime, style, source)
    file, target = Path(file), Target(device, runtime, setting, Workspace.at(workspace))
    path = Path(out) if out is not None else luts.lut_path(target)
    if path.exists():
        raise UsageError(f"There is a table {path} already; choose another --runtime or --out.")
    published = read(file, where)
    specs = [_spec(row, style, file) for row in published]
    origin = {"device": device, "runtime": runtime}
    rows = [{**_row(row, spec, setting), **origin} for row, spec in zip(published, specs, strict=True)]
    facts = {**environment_facts(device, runtime), "imported": _provenance(file, style, source, where)}
    schema.write(path, lut_schema.LUT, rows, facts)
    mapped = _counts(spec.op for spec in specs if spec.op != PUBLISHED)
    kept = _counts(str(spec["layer"]) for spec in specs if spec.op == PUBLISHED)
    return Imported(path, setting, len(rows), mapped, kept, target.workspace.find("devices", f"{device}.toml") is not None)


def _check(device: str, runtime: str, style: str, source: str) -> None:
    """Raises UsageError for what cannot be meant."""
    for what, name in (("device", device), ("runtime", runtime)):
        devices.check_name(what, name)
    if style not in FORMS:
        raise UnknownName(registry.unknown("style", style, FORMS))
    if not source.strip():
        raise UsageError("A published table needs its source: give --source with its authors, address and licence.")


def environment_facts(device: str, runtime: str) -> dict[str, Any]:
    """What is known of where a published table was measured; enough that rows of two devices or runtimes are never mixed."""
    values = dict.fromkeys(("machine", "cpu_signature", "runtime_version"), AS_PUBLISHED)
    values |= dict.fromkeys(("cpu_model", "executes_on"), f"{device}, {AS_PUBLISHED}")
    environment = Environment({"device": device, "runtime": runtime, **values})
    return {"environment": dict(environment.values), "environment_hash": environment.hash}


def _provenance(file: Path, style: str, source: str, where: Mapping[str, str] | None) -> dict[str, Any]:
    """Where the rows come from, for the footer."""
    return {
        "file": file.name,
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "style": style,
        "source": source,
        "where": dict(where or {}),
        "imported_on": datetime.now(UTC).date().isoformat(),
        "statistic": "mean over runs",
    }


def spec_of(key: str, style: str) -> OpSpec | None:
    """The spec a published key is stored under; None if no table of that style has such keys."""
    for form in FORMS[style]:
        if match := form.fullmatch(key):
            layer = match["layer"]
            dims = {name: int(text) for name, text in match.groupdict().items() if name != "layer" and text is not None}
            return _ours(layer, dims) or OpSpec.of(PUBLISHED, layer=layer, style=style, **dims)
    return None


def latencies_ms(table: Lut, keys: Sequence[str], style: str, setting: Setting = Setting()) -> np.ndarray:
    """The published latency of each published key, of an imported table.

    Raises:
        MissingOps: keys the table lacks, all of them.
    """
    specs = [spec_of(key, style) for key in keys]
    known = table.values(setting, MEAN)
    values = [None if spec is None else known.get(spec.key) for spec in specs]
    lacking = sorted({key for key, value in zip(keys, values, strict=True) if value is None})
    if lacking:
        raise MissingOps(
            f"{len(lacking)} published keys are not in {table.path} at {setting.key}, first {lacking[0]}.", lacking
        )
    return np.array(values, float)


def _ours(layer: str, dims: Mapping[str, int]) -> OpSpec | None:
    """The op of ours that is exactly this layer.

    A pooling to one pixel and a classifier of one pixel are. Everything with an activation is not: blocks of ours end in SiLU
    or begin with ReLU, the published ones end in ReLU, ReLU6 or h-swish; ProxylessNAS' Logits pools first.
    """
    before, after = ([dims.get(f"{end}_{side}") for side in ("height", "width", "channels")] for end in ("in", "out"))
    if layer == "AvgPool2D" and after == [1, 1, dims["in_channels"]]:
        return OpSpec.of("global_pool", channels=dims["in_channels"], height=dims["in_height"], width=dims["in_width"])
    if layer == "Logits" and before[:2] == [1, 1]:
        return OpSpec.of("dense", **{"in": dims["in_channels"]}, out=dims["out_channels"])
    return None


def _spec(row: Published, style: str, file: Path) -> OpSpec:
    spec = spec_of(row.key, style)
    if spec is None:
        raise DataError(f"{file}, {row.place}: '{row.key}' is no key of the style {style}; nothing was imported.")
    return spec


def _row(row: Published, spec: OpSpec, setting: Setting) -> dict[str, Any]:
    known: dict[str, float | None] = dict.fromkeys(("flops", "bytes_moved", "parameters"))
    if spec.op != PUBLISHED:
        features = ops.features(spec, setting)
        known = {name: features[name] for name in known}
    return {
        "key": spec.key, **key_columns(spec), "dtype": setting.dtype, "batch": setting.batch, "threads": setting.threads,
        "scenario": setting.scenario, MEAN: row.mean_ms, "processes": 0, "samples": 0, "status": "ok", "reason": row.text,
        **known,
    }  # fmt: skip


def _counts(names: Iterable[str]) -> dict[str, int]:
    listed = list(names)
    return {name: listed.count(name) for name in sorted(set(listed))}
