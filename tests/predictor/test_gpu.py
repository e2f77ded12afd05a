"""GPU ops: physics is recovered from GPUs that follow it, measured ops correct one that does not, stored models stay."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import hwbench
from hwbench.core.errors import DataError, UnknownName, UsageError
from hwbench.device import files
from hwbench.predictor import card
from hwbench.predictor.card_types import Card, GpuCard
from hwbench.predictor.gpu import datasheet, fit, left_out, outside, process, roofline, tables
from hwbench.predictor.gpu import model as gpu_model

ROOT = Path(hwbench.__file__).parents[1]
TABLES = Path(os.environ.get("HWBENCH_TABLES", ROOT.parent / "shared" / "tables"))
FACTS = {"data": [], "errors": {}, "rebuild": "again", **dict.fromkeys(("device", "coverage", "noise_ceiling"))}


def board(name: str, tflops: float, bandwidth: float, sms: int, tdp: float, memory: str = "hbm") -> datasheet.Gpu:
    clock = 1000 + sms
    return datasheet.Gpu(
        name, {"fp32": tflops}, bandwidth, sms, 64, clock, sms << 16, 16 << 30, tdp, memory, architecture=name, process_nm=12
    )


KNOWN = {
    g.name: g
    for g in (
        board("small", 5, 200, 20, 75, "gddr"),
        board("old", 9, 700, 56, 250),
        board("mid", 14, 900, 80, 250),
        board("new", 20, 1500, 108, 300),
    )
}


def some_ops(count: int, seed: int) -> datasheet.Ops:
    rng = np.random.default_rng(seed)
    op = rng.choice(["linear", "bmm", "softmax", "ln", "add", "relu"], count)
    size = {dim: np.round(2 ** rng.uniform(5, 11, count)) for dim in "MNK"}
    rows = {
        "B": np.where(op == "linear", 1, np.round(2 ** rng.uniform(4, 8, count))),
        "H": np.round(2 ** rng.uniform(8, 12, count)),
    }
    wide = np.isin(op, ["linear", "bmm"])
    rows["B"] = np.where(wide, rows["B"], rows["B"] * 128)
    return datasheet.Ops.of({"op": op, **size, **rows})


def truth(g: datasheet.Gpu, ops: datasheet.Ops) -> np.ndarray:
    """What a GPU that is exactly the physics takes, with parameters a bit off the prior."""
    ms = np.zeros(len(ops))
    for family, kinds in datasheet.FAMILIES.items():
        at = np.flatnonzero(np.isin(ops.kind, kinds))
        theta = np.array([middle + 0.3 * width for middle, width in roofline.PRIORS[family].values()])
        sheet = datasheet.sheet_of(np.array([g.name] * len(at)), {g.name: g}, "fp32")
        ms[at] = roofline.physics(family, theta, ops.take(at), sheet).ms
    return ms


LEVELS = {"small": 1.15, "old": 0.87, "new": 1.0}
"""GPUs differ by more than their data sheets say, here in linear and elementwise ops: what adapting must expect."""


def measured(names: list[str], count: int = 250) -> datasheet.Rows:
    parts = []
    for seed, name in enumerate(names):
        ops = some_ops(count, seed)
        level = np.where(np.isin(ops.kind, ["linear", "elementwise"]), LEVELS[name], 1.0)
        noise = level * np.exp(np.random.default_rng(seed).normal(0, 0.02, count))
        parts.append((ops, np.full(count, name), truth(KNOWN[name], ops) * noise, np.full(count, "once")))
    rows = [datasheet.Rows(*part, np.full(count, "fp32")) for part in parts]
    return datasheet.Rows.joined(rows)


@pytest.fixture(scope="module")
def model() -> gpu_model.GpuModel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "TREE_COUNT", 20)
        patch.setattr(fit, "PHYSICS_ROWS", 40)
        patch.setattr(left_out, "PROCESS_ROWS", 10)
        return fit.fit_gpu(measured(["small", "old", "new"]), KNOWN)


def test_gpus_that_follow_the_physics_are_predicted_unseen(model):
    ops = some_ops(300, 9)
    ms, doubt = model.predict(KNOWN["mid"], ops)
    exact = truth(KNOWN["mid"], ops)
    assert np.abs(ms / exact - 1).mean() < 0.06
    assert np.abs(roofline.roofline(KNOWN["mid"], ops) / exact - 1).mean() > 0.3
    low, high = model.bounds(KNOWN["mid"], ops)
    assert (low < ms).all()
    assert (ms < high).all()
    assert ((low <= exact) & (exact <= high)).mean() > 0.7
    assert (doubt > 0).all()


def test_the_card_of_a_fit_has_every_left_out_generation(model):
    for how in ("zero_shot", "measured_30"):
        for kind in datasheet.KINDS:
            assert sorted(model.judged[how][kind]) == ["new", "old", "small"]
            assert all(0 <= entry["covered"] <= 1 for entry in model.judged[how][kind].values())


def test_measured_ops_correct_what_the_data_sheet_does_not_say(model):
    ops = some_ops(400, 11)
    slow = np.where(np.isin(ops.kind, ["linear", "elementwise"]), 1.3, 1.0) * truth(KNOWN["mid"], ops)
    shown, rest = np.arange(30), np.arange(30, 400)
    before, _ = model.predict(KNOWN["mid"], ops.take(rest))
    adapted = model.adapt(KNOWN["mid"], ops.take(shown), slow[shown])
    after, doubt = adapted.predict(KNOWN["mid"], ops.take(rest))

    def error(ms: np.ndarray) -> float:
        return float(np.abs(ms / slow[rest] - 1).mean())

    assert error(after) < 0.6 * error(before)
    assert doubt.mean() < model.predict(KNOWN["mid"], ops.take(rest))[1].mean() * 1.05
    with pytest.raises(UsageError, match="adapted to mid, not to old"):
        adapted.predict(KNOWN["old"], ops)


def test_a_stored_model_is_the_same_to_the_last_bit(model, tmp_path):
    ops = some_ops(50, 3)
    adapted = model.adapt(KNOWN["mid"], ops, truth(KNOWN["mid"], ops) * 1.1)
    for one in (model, adapted):
        values, arrays = one.state()
        card.write(tmp_path, GpuCard, {**FACTS, "kind": "gpu-ops", "features": {}, "state": values}, arrays)
        again = gpu_model.load(tmp_path)
        for a, b in zip(one.predict(KNOWN["mid"], ops), again.predict(KNOWN["mid"], ops), strict=True):
            assert a.tobytes() == b.tobytes()
        assert [x.tobytes() for x in one.bounds(KNOWN["mid"], ops)] == [x.tobytes() for x in again.bounds(KNOWN["mid"], ops)]
        assert json.loads(json.dumps(values)) == again.state()[0]


def test_the_order_of_rows_does_not_matter():
    rows = measured(["small", "new"], 80)
    shuffled = rows.take(np.random.default_rng(1).permutation(len(rows)))
    a, b = (sorted(r.take(r.sample(5)).ms) for r in (rows, shuffled))
    assert a == b


def test_a_throttled_campaign_is_found():
    sizes = {dim: np.full(20, 4096.0) for dim in "MNK"}
    ops = datasheet.Ops.of({"op": ["linear"] * 20, "B": np.ones(20), **sizes})
    campaign = np.repeat(["a", "b"], 10)
    rows = datasheet.Rows(ops, np.full(20, "mid"), np.where(campaign == "a", 10.0, 25.0), campaign, np.full(20, "fp32"))
    assert tables.throttled(rows) == {"mid/b/linear": 2.5}


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"B": [1]}, "need a column 'op'; found: B"),
        ({"op": ["linear"], "B": [1], "M": [2], "N": [3]}, "kind linear need a column 'K'; found: op, B, M, N"),
        ({"op": ["relu", "ln"], "B": [1, 4], "H": [2, None]}, r"Row 1 \(ln\): H must be a positive number, found nan"),
        ({"op": ["relu"], "B": [0], "H": [2]}, "B must be a positive number, found 0"),
    ],
)
def test_a_missing_column_or_size_is_named(columns, said):
    with pytest.raises(UsageError, match=said):
        datasheet.Ops.of(columns)


def test_unknown_ops_kinds_and_gpus_are_named(model):
    with pytest.raises(UnknownName, match=r"Unknown GPU op 'softmaxx'\. Did you mean softmax"):
        datasheet.Ops.of({"op": ["softmaxx"]})
    rows = measured(["small", "new"], 10)
    with pytest.raises(UsageError, match="two generations at least"):
        fit.fit_gpu(rows.take(np.flatnonzero(rows.gpu == "new")), KNOWN)
    with pytest.raises(UnknownName, match="Unknown GPU 'small'"):
        fit.fit_gpu(rows, {"new": KNOWN["new"]})
    with pytest.raises(UsageError, match="needs measured ops with positive latencies; got 0 rows"):
        model.adapt(KNOWN["mid"], datasheet.Ops.of({"op": []}), np.zeros(0))
    with pytest.raises(UsageError, match="states no fp16 peak"):
        roofline.roofline(KNOWN["mid"], some_ops(2, 0), "fp16")


def test_shipped_data_sheets_are_whole():
    found = datasheet.gpus(ROOT)
    assert {"nvidia-tesla-p4", "nvidia-a100-pcie-80gb", "nvidia-h100-sxm5-80gb", "nvidia-l4"} <= set(found)
    for g in found.values():
        reached = 2 * g.sms * g.cores_per_sm * g.clock_mhz / 1e6  # a multiply-add per core and cycle
        assert reached == pytest.approx(g.peaks["fp32"], rel=0.03), g.name
    assert found["nvidia-a100-pcie-40gb"].generation == found["nvidia-a10"].generation == "ampere"
    assert all(g.process_nm for g in found.values())


def test_a_device_that_is_no_gpu_or_has_half_a_data_sheet_is_refused(tmp_path):
    cpu = next(d for d in map(files.read, (ROOT / "devices").glob("*.toml")) if d.kind != "gpu")
    with pytest.raises(UsageError, match="not a GPU"):
        datasheet.of_device(cpu)
    text = (ROOT / "devices" / "nvidia-l4.toml").read_text()
    (tmp_path / "l4.toml").write_text(text.replace("sms = 58\n", ""))
    with pytest.raises(DataError, match="lacks a usable GPU data-sheet entry: 'sms'"):
        datasheet.of_device(files.read(tmp_path / "l4.toml"))


def test_a_gpu_file_reads_as_a_device_that_cannot_be_reached(tmp_path):
    found = files.get("nvidia-tesla-t4", ROOT)
    assert (found.kind, found.reach, found.cpu_model, found.is_local) == ("gpu", "none", "NVIDIA Tesla T4", False)
    text = (ROOT / "devices" / "nvidia-tesla-t4.toml").read_text()
    (tmp_path / "t4.toml").write_text(text.replace("model = ", "modell = "))
    with pytest.raises(DataError, match=r"'gpu\.model' must be a str, found nothing"):
        files.read(tmp_path / "t4.toml")


def test_another_kind_of_predictor_is_refused(tmp_path):
    card.write(tmp_path, Card, {**FACTS, "kind": "lut_sum", "features": []}, {"a": np.zeros(1)})
    with pytest.raises(DataError, match="is a 'lut_sum' predictor; one of GPU operators is asked"):
        gpu_model.load(tmp_path)


@pytest.mark.skipif(not (TABLES / "neusight").is_dir(), reason="needs the public tables (HWBENCH_TABLES)")
def test_the_real_table_reads_and_a_shipped_predictor_answers():
    known = datasheet.gpus(ROOT)
    rows, facts, noise = tables.read_neusight(TABLES, known)
    assert facts["file"] == "neusight/gpu_ops.parquet"
    assert set(map(str, rows.gpu)) <= set(known)
    assert noise["mean_abs_error"] < 0.2
    assert list(tables.throttled(rows)) == ["nvidia-tesla-p4/train/linear"]
    shipped = gpu_model.load(ROOT / "predictors" / "gpu" / "neusight-ops")
    at = np.flatnonzero((rows.gpu == "nvidia-tesla-v100-pcie-32gb") & (rows.campaign == "test"))[::10]
    ms, _ = shipped.predict(known["nvidia-tesla-v100-pcie-32gb"], rows.ops.take(at))
    assert np.abs(ms / rows.ms[at] - 1).mean() < 0.25


def test_the_desktop_gpu_is_a_whole_data_sheet():
    sheet = datasheet.gpus(ROOT)["nvidia-rtx-4090"]
    assert sheet.peaks["fp32"] == pytest.approx(2e-6 * sheet.sms * sheet.cores_per_sm * sheet.clock_mhz, rel=1e-3)
    ms = roofline.roofline(sheet, datasheet.Ops.of({"op": ["linear"], "B": [1], "M": [4096], "N": [4096], "K": [4096]}))
    assert ms[0] == pytest.approx(2 * 4096**3 / 82.6e9, rel=1e-6)


@pytest.mark.parametrize("path", sorted((ROOT / "devices").glob("*.toml")), ids=lambda path: path.stem)
def test_a_shipped_gpu_is_a_sound_data_sheet(path):
    found = files.read(path)
    assert found.kind != "gpu" or datasheet.of_device(found).peaks["fp32"] > 1


def test_a_correction_is_never_taken_further_than_it_helps_the_measured_ops_themselves():
    """Noise that nothing explains is not followed; a level that all ops share is."""
    rng = np.random.default_rng(3)
    fitted = np.array([0.7, 0.7, 0.7, 0.6, 0.4, 1.0, 0.5])
    kind = np.repeat(["linear", "bmm"], 15)
    shares = rng.dirichlet([1, 4, 1], 30)
    places = np.column_stack([shares, rng.normal(size=(30, 6))])
    for off, least, most in ((rng.permutation(np.tile([-1.5, 1.5], 15)), 0.0, 0.5), (np.full(30, 1.0), 0.75, 1.0)):
        seen = process.learn(fitted, kind, places, off)
        assert (least <= seen.trust).all()
        assert (seen.trust <= most).all()
    alone = process.learn(fitted, kind[:1], places[:1], np.ones(1))
    shift, doubt = process.ask(fitted, alone, kind, places)
    assert (np.abs(shift) < 1).all()
    assert (doubt > fitted[process.NOISE]).all()


def test_thirty_measured_ops_do_not_make_gpus_worse(model):
    """GPUs with ops that are off at random, and such with a level: the mean error with 30 ops is not above that without."""
    for scatter, level in ((0.0, 1.0), (0.3, 1.0), (0.3, 1.4)):
        errors = []
        for seed in range(6):
            ops = some_ops(300, 40 + seed)
            ms = truth(KNOWN["mid"], ops) * level * np.exp(np.random.default_rng(seed).normal(0, scatter, 300))
            told = model.adapt(KNOWN["mid"], ops.take(np.arange(30)), ms[:30])
            rest = ops.take(np.arange(30, 300))
            errors.append([np.abs(m.predict(KNOWN["mid"], rest)[0] / ms[30:] - 1).mean() for m in (model, told)])
        before, after = np.mean(errors, axis=0)
        assert after <= before + 0.01


def test_an_interval_is_wider_for_a_data_sheet_unlike_those_learnt_from(model):
    ops = some_ops(50, 5)
    far = board("far", 14, 900, 80, 25)  # the same arithmetic from a tenth of the power
    assert not [line for line in model.outside(KNOWN["mid"]) if "watt" in line]
    assert any(line.startswith("TFLOP/s per watt, for its process: 0.56, learnt from") for line in model.outside(far))
    assert outside.wider(far, "fp32", model.ranges["fp32"]) > 1.5
    widths = [np.log(high / low) for low, high in (model.bounds(g, ops) for g in (KNOWN["mid"], far))]
    assert (widths[1] > 1.5 * widths[0]).all()


def test_power_stretches_arithmetic_and_never_shortens_it():
    theta = np.array([middle for middle, _ in roofline.PRIORS["gemm"].values()])
    ops = datasheet.Ops.of({"op": ["linear"] * 3, "B": [1] * 3, "M": [512, 2048, 8192], "N": [4096] * 3, "K": [4096] * 3})
    ms = []
    for watts in (1000, 250, 60):
        known = {"it": board("it", 14, 900, 80, watts)}
        ms.append(roofline.physics("gemm", theta, ops, datasheet.sheet_of(np.array(["it"] * 3), known, "fp32")).ms)
        assert (ms[-1] > roofline.roofline(known["it"], ops)).all()
    assert (ms[0] <= ms[1]).all()
    assert (ms[1] < ms[2]).all()


def test_a_board_that_states_no_process_is_told_so(model):
    assert any("states no gpu.process_nm" in line for line in model.outside(replace(KNOWN["mid"], process_nm=None)))
