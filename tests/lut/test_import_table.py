"""Import of published tables: keys keep their meaning, rows their provenance, and sums of rows are the networks' latencies."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from hwbench.core import schema
from hwbench.core.errors import DataError, EnvironmentMismatch, MissingOps, UnknownName, UsageError
from hwbench.device.target import Target
from hwbench.lut import schema as lut_schema
from hwbench.lut import table as luts
from hwbench.lut.importers import import_table
from hwbench.lut.table import Lut
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec, Setting

TABLES = Path(os.environ.get("HWBENCH_TABLES", Path(__file__).parents[3] / "shared" / "tables"))
POOL, LOGITS = "AvgPool2D-input:7x7x1152-output:1x1x1152", "Logits-input:1x1x1536-output:1000"
CONV = "Conv-input:224x224x3-output:112x112x24"
KEYS = {
    POOL: ("once-for-all", "global_pool(channels=1152,height=7,width=7)"),
    LOGITS: ("once-for-all", "dense(in=1536,out=1000)"),
    CONV: (
        "once-for-all",
        "published(in_channels=3,in_height=224,in_width=224,layer=Conv,out_channels=24,out_height=112,out_width=112,"
        "style=once-for-all)",
    ),
    "Logits-input:7x7x1280-output:1000": (
        "once-for-all",
        "published(in_channels=1280,in_height=7,in_width=7,layer=Logits,out_channels=1000,style=once-for-all)",
    ),
    "expanded_conv-input:56x56x24-output:28x28x40-expand:6-kernel:5-stride:2-idskip:0": (
        "once-for-all",
        "published(expand=6,idskip=0,in_channels=24,in_height=56,in_width=56,kernel=5,layer=expanded_conv,out_channels=40,"
        "out_height=28,out_width=28,stride=2,style=once-for-all)",
    ),
    "expanded_conv-input:7x7x192-output:7x7x192-expand:576-kernel:7-stride:1-idskip:1-se:1-hs:1": (
        "once-for-all",
        "published(expand=576,hs=1,idskip=1,in_channels=192,in_height=7,in_width=7,kernel=7,layer=expanded_conv,"
        "out_channels=192,out_height=7,out_width=7,se=1,stride=1,style=once-for-all)",
    ),
    "BasicResidual_downup_2x_H32_W64_Cin384_Cout192_stride1_dilation1": (
        "fasterseg",
        "published(dilation=1,height=32,in_channels=384,layer=BasicResidual_downup_2x,out_channels=192,stride=1,"
        "style=fasterseg,width=64)",
    ),
    "BasicResidual1x_H32_W64_Cin384_Cout192_stride2_dilation1": (
        "fasterseg",
        "published(dilation=1,height=32,in_channels=384,layer=BasicResidual1x,out_channels=192,stride=2,style=fasterseg,width=64)",
    ),
    "FactorizedReduce_H64_W128_Cin96_Cout256_stride2": (
        "fasterseg",
        "published(height=64,in_channels=96,layer=FactorizedReduce,out_channels=256,stride=2,style=fasterseg,width=128)",
    ),
    "ConvNorm_H64_W128_Cin192_Cout96_kernel1_stride1": (
        "fasterseg",
        "published(height=64,in_channels=192,kernel=1,layer=ConvNorm,out_channels=96,stride=1,style=fasterseg,width=128)",
    ),
    "ff_H128_W256_C288": ("fasterseg", "published(channels=288,height=128,layer=ff,style=fasterseg,width=256)"),
    "head_H128_W256_Cin64_Cout19": (
        "fasterseg",
        "published(height=128,in_channels=64,layer=head,out_channels=19,style=fasterseg,width=256)",
    ),
}


def yaml_of(rows: list[dict]) -> str:
    """Rows in the published form."""
    return "".join(f"{r['key']}:\n  count: {r['count']}\n  mean: {r['mean_ms']!r}\n  std: {r['std_ms']!r}\n" for r in rows)


@pytest.fixture
def table(tmp_path) -> Path:
    path = tmp_path / "lookup.yaml"
    path.write_text(yaml_of([{"key": key, "mean_ms": 0.5, "std_ms": 0.01, "count": 100} for key in (POOL, LOGITS, CONV)]))
    return path


def load(file: Path, workspace: Path, **changed: object) -> import_table.Imported:
    asked = {"style": "once-for-all", "device": "note-10", "source": "authors, licence", "workspace": workspace, **changed}
    return import_table.import_table(file, **asked)


@pytest.mark.parametrize("key", KEYS)
def test_a_published_key_has_one_spec(key):
    style, expected = KEYS[key]
    spec = import_table.spec_of(key, style)
    assert spec.key == expected
    assert OpSpec.parse(spec.key) == spec
    other = {"once-for-all": "fasterseg", "fasterseg": "once-for-all"}[style]
    assert import_table.spec_of(key, other) is None
    if spec.op == import_table.PUBLISHED:
        with pytest.raises(UnknownName, match="Unknown op 'published'"):
            ops.single(spec)
    else:
        assert ops.single(spec).nodes


def test_a_mapped_op_is_the_published_layer():
    pool, logits = (import_table.spec_of(key, "once-for-all") for key in (POOL, LOGITS))
    shapes = [[t.shape for t in side] for spec in (pool, logits) for side in ops.op_of(spec).signature(spec)]
    assert shapes == [[(1152, 7, 7)], [(1152, 1, 1)], [(1536,)], [(1000,)]]
    assert ops.op_of(logits).work(logits).macs == 1536 * 1000


@pytest.mark.parametrize(
    "key",
    [
        "Conv-input:8x8x3",
        "Conv_3-input:8x8x3-output:4x4x16",
        CONV + "-kernel:3",
        CONV.replace("224x224x3", "224x224"),
        CONV.replace(":224", ":0224"),
        "expanded_conv-input:7x7x192-output:7x7x192-expand:576-kernel:7-stride:1-idskip:1-se:1",
        CONV.upper(),
        "",
    ],
)
def test_a_key_of_no_known_form_stops_the_import(tmp_path, table, key):
    with table.open("a") as stream:
        stream.write(f"{json.dumps(key)}: {{mean: 1.0}}\n")
    with pytest.raises(DataError) as error:
        load(table, tmp_path)
    assert str(error.value) == f"{table}, line 13: '{key}' is no key of the style once-for-all; nothing was imported."
    assert not (tmp_path / "luts").exists()


def test_rows_keep_their_provenance(tmp_path, table):
    done = load(table, tmp_path, runtime="tflite", setting=Setting(threads=2))
    assert (done.rows, done.mapped, done.kept) == (3, {"dense": 1, "global_pool": 1}, {"Conv": 1})
    assert done.path == tmp_path / "luts" / "note-10" / "tflite.parquet"
    assert not done.known_device
    assert load(table, tmp_path, device="raspberry-pi-4").known_device
    data, footer = schema.read(done.path, lut_schema.LUT)
    rows = {row["key"]: row for row in data.to_pylist()}
    for key in (POOL, LOGITS, CONV):
        row = rows[KEYS[key][1]]
        assert (row["latency_mean_ms"], row["status"], row["threads"]) == (0.5, "ok", 2)
        assert row["reason"] == f"mean 0.5 ms of 100 runs, standard deviation 0.01 ms; published as {key}"
        measured = ("latency_min_ms", "latency_median_ms", "min_spread", "verdict", "latency_fastest_ms", "overhead_ms")
        assert all(row[name] is None for name in measured), "nothing of it was measured by hwbench"
        assert (row["processes"], row["samples"]) == (0, 0)
        assert (row["device"], row["runtime"], row["measured_at"]) == ("note-10", "tflite", None)
        assert row["sizes"], "what the key says can be read"
    assert rows[KEYS[LOGITS][1]]["flops"] == 2 * 1536 * 1000
    assert rows[KEYS[CONV][1]]["flops"] is None
    assert rows[KEYS[CONV][1]]["input_shapes"] is None, "no op of ours says what it reads"
    assert rows[KEYS[LOGITS][1]]["output_shapes"] == [[1000]]
    told = footer["imported"]
    assert told["sha256"] == hashlib.sha256(table.read_bytes()).hexdigest()
    assert (told["file"], told["style"], told["source"]) == ("lookup.yaml", "once-for-all", "authors, licence")
    assert told["statistic"] == "mean over runs"
    assert len(told["imported_on"]) == 10


def test_an_imported_table_answers_by_published_key(tmp_path, table):
    stored = Lut.read(load(table, tmp_path).path)
    assert import_table.latencies_ms(stored, [CONV, POOL, CONV], "once-for-all").tolist() == [0.5] * 3
    absent = [LOGITS.replace("1536", "1280"), "Conv_9"]
    with pytest.raises(MissingOps, match="2 published keys are not in") as error:
        import_table.latencies_ms(stored, [CONV, *absent], "once-for-all")
    assert error.value.keys == tuple(sorted(absent))
    spec = import_table.spec_of(POOL, "once-for-all")
    with pytest.raises(MissingOps):
        stored.column([spec], Target("pixel-1"))  # a mean is no minimum


def test_tables_of_two_devices_or_runtimes_do_not_mix(tmp_path, table):
    mine = Lut.read(load(table, tmp_path, runtime="tflite").path)
    for changed in ({"runtime": "onnxruntime"}, {"device": "pixel-1", "runtime": "tflite"}):
        other = Lut.read(load(table, tmp_path, **changed).path)
        with pytest.raises(EnvironmentMismatch):
            luts.refuse_mixing(mine.environment, other.environment, "mine", "other")
    again = Lut.read(load(table, tmp_path, runtime="tflite", out=tmp_path / "again.parquet").path)
    luts.refuse_mixing(mine.environment, again.environment, "mine", "again")
    assert again.rows == mine.rows


def test_a_stored_table_is_never_overwritten(tmp_path, table):
    done = load(table, tmp_path)
    before = done.path.read_bytes()
    with pytest.raises(UsageError, match=r"There is a table .*published\.parquet already; choose another --runtime or --out"):
        load(table, tmp_path)
    assert done.path.read_bytes() == before


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"style": "once-4-all"}, "Unknown style 'once-4-all'. Did you mean once-for-all"),
        ({"device": "../elsewhere"}, "'../elsewhere' cannot name a device"),
        ({"device": "Samsung Note10"}, "cannot name a device"),
        ({"device": "local"}, "'local' cannot name a device"),
        ({"runtime": "a/b"}, "'a/b' cannot name a runtime"),
        ({"source": " "}, "needs its source: give --source"),
        ({"where": {"table": "x"}}, "has no columns, so --where"),
    ],
)
def test_what_cannot_be_asked_is_one_line(tmp_path, table, changed, said):
    with pytest.raises(UsageError) as error:
        load(table, tmp_path, **changed)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "luts").exists()


def public(*parts: str) -> Path:
    path = TABLES.joinpath(*parts)
    if not path.is_file():
        pytest.skip(f"no public tables at {TABLES}; set HWBENCH_TABLES")
    return path


def test_every_public_row_is_imported_and_sums_are_measured_latencies(tmp_path):
    """Once-for-all's networks for the Note 10, measured end to end (rounded to 1 ms), against the sum of the table's rows."""
    rows = pq.read_table(public("ofa_proxyless_lut", "op_latency_lut.parquet")).to_pylist()
    chosen = [row for row in rows if row["table"] == "ofa/note10/224_lookup_table.yaml"]
    published = tmp_path / "224_lookup_table.yaml"
    published.write_text(yaml_of(chosen))
    done = load(published, tmp_path)
    assert (done.rows, sum(done.mapped.values()), sum(done.kept.values())) == (len(chosen), 2, len(chosen) - 2)
    stored = Lut.read(done.path)
    means = import_table.latencies_ms(stored, [row["key"] for row in chosen], "once-for-all")
    assert means.tolist() == [row["mean_ms"] for row in chosen]
    networks = pq.read_table(public("ofa_proxyless_lut", "ofa_specialized_nets.parquet")).to_pylist()
    for name, tolerance in (("note10_lat-30ms_top1-78.4_finetune-75", 0.02), ("note10_lat-41ms_top1-79.3_finetune-75", 0.05)):
        (network,) = (row for row in networks if row["name"] == name)
        keys = keys_of(json.loads(network["blocks_in_out_k_s_e"]), 224)  # the second is of 220 pixels: no table, so 3 % off
        total = import_table.latencies_ms(stored, keys, "once-for-all").sum()
        assert total == pytest.approx(network["latency_ms"], rel=tolerance)


def keys_of(blocks: list[list[int]], image: int) -> list[str]:
    """What once-for-all's own latency table looks up for a MobileNetV3 of width 1.2."""
    side = image // 2
    keys = [f"Conv-input:{image}x{image}x3-output:{side}x{side}x24"]
    for wide_in, wide_out, kernel, stride, expand in blocks:
        after = (side - 1) // stride + 1
        squeezed, swish, skip = wide_out in (48, 136, 192), wide_out in (96, 136, 192), wide_in == wide_out and stride == 1
        keys.append(
            f"expanded_conv-input:{side}x{side}x{wide_in}-output:{after}x{after}x{wide_out}-expand:{wide_in * expand}"
            f"-kernel:{kernel}-stride:{stride}-idskip:{skip:d}-se:{squeezed:d}-hs:{swish:d}"
        )
        side = after
    last = [f"Conv_1-input:{side}x{side}x192-output:{side}x{side}x1152", f"AvgPool2D-input:{side}x{side}x1152-output:1x1x1152"]
    return [*keys, *last, "Conv_2-input:1x1x1152-output:1x1x1536", LOGITS]


@pytest.mark.parametrize("name", ["ofa/note10/160_lookup_table.yaml", "proxylessnas/mobile_trim.yaml"])
def test_a_public_table_is_chosen_of_several(tmp_path, name):
    path = public("ofa_proxyless_lut", "op_latency_lut.parquet")
    done = load(path, tmp_path, where={"table": name})
    rows = [row for row in pq.read_table(path).to_pylist() if row["table"] == name]
    assert done.rows == len(rows)
    total = import_table.latencies_ms(Lut.read(done.path), [row["key"] for row in rows], "once-for-all").sum()
    assert total == pytest.approx(sum(row["mean_ms"] for row in rows))


def test_fasterseg_imports_whole_from_npy_and_parquet(tmp_path):
    path = public("fasterseg", "op_latency_lut.parquet")
    rows = pq.read_table(path).to_pylist()
    saved = tmp_path / "latency_lookup_table.npy"
    np.save(saved, {row["key"]: row["latency_ms"] for row in rows})  # type: ignore[arg-type]
    a, b = (load(f, tmp_path, style="fasterseg", runtime=f"tensorrt-{f.suffix[1:]}") for f in (path, saved))
    assert (a.rows, a.mapped, sum(a.kept.values())) == (len(rows), {}, len(rows))
    assert (a.rows, a.kept) == (b.rows, b.kept)
    from_parquet, from_npy = (
        {key: {**row, "runtime": "tensorrt"} for key, row in Lut.read(each.path).rows.items()} for each in (a, b)
    )
    assert from_parquet == from_npy
