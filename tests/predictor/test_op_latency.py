"""Models of ops: sizes left out are found again, what cannot be known is refused, doubt means something."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from hwbench.core import workspace
from hwbench.core.errors import UsageError
from hwbench.lut.table import Lut
from hwbench.network import work as ops
from hwbench.network.spec import OpSpec, Setting
from hwbench.predictor.op_latency import FAR_BYTES, MANY, PHYSICS, SHARES, Curve, OpModel, known, physics, roofline, tree_inputs

SETTING = Setting()


def ffn(dim: int, hidden: int, tokens: int = 64, activation: str = "gelu") -> OpSpec:
    return OpSpec.of("ffn_block", tokens=tokens, dim=dim, hidden=hidden, activation=activation, norm="pre")


def linear(tokens: int, width: int, out: int) -> OpSpec:
    return OpSpec.of("linear", tokens=tokens, **{"in": width}, out=out)


def physical_ms(specs: list[OpSpec], quirk: float = 0.0, tiles: float = 0.0) -> np.ndarray:
    """A device with known peaks: constant + FLOPs + bytes, and what unfilled tiles cost."""
    rng = np.random.default_rng(1)
    found = []
    for spec in specs:
        f = ops.features(spec, SETTING)
        empty = np.prod([1 + tiles * v for name, v in f.items() if name.endswith("_empty")])
        found.append((0.004 + f["flops"] / 8e7 * empty + f["bytes_moved"] / 2e7) * np.exp(quirk * rng.standard_normal()))
    return np.array(found)


GRID = [ffn(dim, ratio * dim) for dim in (64, 96, 128, 192, 256) for ratio in (2, 3, 4)]


def fitted(specs: list[OpSpec], ms: np.ndarray, **options: object) -> OpModel:
    model = OpModel(**options)
    model.fit(specs, ms, SETTING)
    return model


def test_features_state_work_traffic_and_empty_tiles():
    found = ops.features(ffn(100, 400), SETTING)
    assert (found["dim"], found["dim_empty"], found["hidden_empty"]) == (100, 12 / 16, 0.0)
    assert found["inner_bytes"] > found["bytes_moved"] > 0
    assert found["flops_per_byte"] == pytest.approx(found["flops"] / found["bytes_moved"])
    one = ops.features(linear(8, 16, 32), SETTING)
    assert one["inner_bytes"] == one["bytes_moved"]


def test_sizes_left_out_of_the_shipped_table_are_found_again():
    (path,) = (workspace.packaged() / "luts").glob("intel-xeon-6-207-2-2c/onnxruntime.parquet")
    rows = [(OpSpec.parse(key), row["latency_min_ms"]) for (key, at), row in Lut.read(path).rows.items() if at == SETTING.key]
    rows = [(spec, ms) for spec, ms in rows if spec.op in ("attention_block", "ffn_block")]
    np.random.default_rng(0).shuffle(rows)
    errors, surprises = [], []
    for fold in range(3):
        learn, judge = [r for i, r in enumerate(rows) if i % 3 != fold], [r for i, r in enumerate(rows) if i % 3 == fold]
        model = fitted([s for s, _ in learn], np.array([ms for _, ms in learn]))
        guess, doubt = model.predict([s for s, _ in judge])
        truth = np.array([ms for _, ms in judge])
        answered = ~np.isnan(guess)
        assert answered.mean() > 0.8
        errors += list(np.abs(guess / truth - 1)[answered])
        surprises += list((np.log(truth / guess) / doubt)[answered])
    assert np.mean(errors) < 0.04  # rows themselves repeat within 1 to 2 %
    assert np.mean(np.square(surprises)) ** 0.5 < 1.6


def test_a_physical_device_is_learnt_from_few_rows():
    ms = physical_ms(GRID)
    held = [ffn(dim, hidden) for dim in (80, 160, 224) for hidden in (200, 480, 640)]
    guess, doubt = fitted(GRID, ms).predict(held)
    assert np.abs(guess / physical_ms(held) - 1).max() < 0.02
    assert (doubt < 0.1).all()


def test_a_measured_row_is_answered_as_it_was_measured():
    ms = physical_ms(GRID, quirk=0.05)
    model = fitted(GRID, ms)
    guess, doubt = model.predict(GRID)
    assert guess == pytest.approx(ms, rel=1e-12)
    assert (doubt < model.predict([ffn(112, 300)])[1]).all()


def test_what_was_never_measured_is_refused():
    model = fitted(GRID, physical_ms(GRID))
    relu, far, small, near = ffn(128, 256, activation="relu"), ffn(2048, 4096), ffn(64, 128, tokens=31), ffn(300, 1100)
    guess, doubt = model.predict([relu, far, small, near, OpSpec.of("gelu", tokens=4, dim=8)])
    assert np.isnan(guess).tolist() == np.isnan(doubt).tolist() == [True, True, True, False, True]
    reaching, wide = fitted(GRID, physical_ms(GRID), reach=np.inf).predict([far, near, ffn(150, 450)])
    assert not np.isnan(reaching).any()
    assert wide[0] > wide[1] > wide[2], "doubt grows with the distance from what was measured"


def test_the_roofline_cannot_fall():
    rng = np.random.default_rng(0)
    columns = 1 + len(PHYSICS) + len(FAR_BYTES)
    matrix = np.column_stack([np.ones(24), rng.uniform(1, 9, (24, columns - 1))])
    assert (roofline(matrix, 10 / matrix[:, 1]) >= 0).all()
    planted = matrix @ [1, 2, 0, 3, 1, *[0] * (columns - 5)]
    assert matrix @ roofline(matrix, planted) == pytest.approx(planted, rel=0.02)
    one = roofline(matrix[:1], np.array([5.0]))
    assert one * matrix[0] == pytest.approx(5 * np.array(SHARES)), "a single row is shared out, not given to the constant"
    model = fitted(GRID, physical_ms(GRID))
    rising = [ffn(dim, 4 * dim) for dim in range(64, 257, 16)]
    assert (np.diff(model.predict(rising)[0]) > 0).all()


def test_the_roofline_sees_pieces_and_bytes_beyond_the_caches():
    near, far, farther = (known(linear(tokens, 16, 16), SETTING) for tokens in (16, 20_000, 200_000))
    found = physics([near, far, farther])
    moved = [k.features["bytes_moved"] for k in (near, far, farther)]
    assert moved[0] < FAR_BYTES[0] < moved[1] < FAR_BYTES[1] < moved[2]
    assert found[:, : 1 + len(PHYSICS)].tolist() == [[1.0, *(k.features[n] for n in PHYSICS)] for k in (near, far, farther)]
    assert found[:, 1 + len(PHYSICS) :].tolist() == [
        [0, 0],
        [moved[1] - FAR_BYTES[0], 0],
        [moved[2] - FAR_BYTES[0], moved[2] - FAR_BYTES[1]],
    ]
    assert found[:, 1 + PHYSICS.index("pieces")].tolist() == [1, 1, 1]
    rows = OpSpec.parse("kernel(attributes=none,inputs=f1x6x8,outputs=f1x6x8,type=Softmax,version=13)")
    many_pieces = known(rows, SETTING)
    assert physics([many_pieces])[0, 1 + PHYSICS.index("pieces")] == many_pieces.numbers["pieces"] == 6


def test_a_buffer_that_is_laid_out_whole_counts_as_traffic_beyond_the_caches():
    spec = OpSpec.parse(
        "kernel(attributes=kernel_shape.l.3.3,inputs=u1x64x258x258_ku8x64x3x3_ue_kue,outputs=j1x8x256x256,type=ConvInteger,version=10)"
    )
    one = known(spec, SETTING)
    assert one.features["laid_bytes"] == 64 * 9 * 256 * 256
    far = physics([one])[0, 1 + len(PHYSICS) :]
    assert far.tolist() == [one.features["bytes_moved"] + one.features["laid_bytes"] - each for each in FAR_BYTES]


def test_slow_memory_is_learnt_from_many_rows_and_not_from_one():
    """Traffic beyond 10 MB costs four times as much: known where rows show it, and hardly believed of a single one."""
    rows = [known(linear(int(tokens), 16, 16), SETTING) for tokens in np.geomspace(1000, 800_000, 400)]
    inside = [k for k in rows if k.features["bytes_moved"] <= FAR_BYTES[1]]
    slow = 1 + len(PHYSICS) + 1

    def device_ms(asked):
        moved = np.array([k.features["bytes_moved"] for k in asked])
        return 0.004 + moved / 2e7 + 3 * np.maximum(moved - FAR_BYTES[1], 0) / 2e7

    def learnt(asked):
        return roofline(physics(asked), device_ms(asked))

    assert physics(rows) @ learnt(rows) == pytest.approx(device_ms(rows), rel=0.08)
    assert learnt(rows)[slow] == pytest.approx(3 / 2e7, rel=0.15)
    assert learnt(inside)[1 + len(PHYSICS) :].tolist() == [0, 0], "rows that stay inside say nothing of what lies beyond"
    assert 0 < learnt([*inside, rows[-1]])[slow] < 0.15 * learnt(rows)[slow]


def test_a_small_group_learns_its_shape_from_its_siblings():
    few = [ffn(64, 128, activation="relu"), ffn(256, 1024, activation="relu"), ffn(128, 384, activation="relu")]
    held = [ffn(192, 384, activation="relu"), ffn(96, 384, activation="relu")]
    specs = [*GRID, *few]
    guess, _ = fitted(specs, physical_ms(specs)).predict(held)
    assert np.abs(guess / physical_ms(held) - 1).max() < 0.05
    slow = physical_ms(specs)
    slow[len(GRID) :] *= 3
    assert np.abs(fitted(specs, slow).predict(held)[0] / (3 * physical_ms(held)) - 1).max() < 0.1, "at a level of its own"
    silu = ffn(96, 192, activation="silu")
    assert np.isnan(fitted(specs, physical_ms(specs)).predict([silu])[0][0]), "a group without any row stays unknown"


@pytest.fixture(scope="module")
def many():
    rng = np.random.default_rng(2)
    drawn = [linear(*(int(v) for v in np.exp(rng.uniform(np.log(16), np.log(1024), 3)))) for _ in range(MANY + 60)]
    specs = list(dict.fromkeys(drawn))  # in the order of the draw, which the hashes of a set would not keep
    return specs, physical_ms(specs, quirk=0.01, tiles=0.5)


def test_trees_take_over_where_they_are_better(many):
    specs, ms = many
    learn, judge = specs[:-30], specs[-30:]
    errors = {}
    for trees in (True, False):
        model = fitted(learn, ms[:-30], trees=trees)
        guess, doubt = model.predict(judge)
        answered = ~np.isnan(guess)
        errors[trees] = np.abs(guess / ms[-30:] - 1)[answered].mean()
        assert (np.log(ms[-30:] / guess) / doubt)[answered].std() < 2
        assert model.errors["linear"] == pytest.approx(errors[trees], rel=0.8)
    assert errors[True] < errors[False]


def test_trees_rise_with_work_and_sizes(many):
    specs, ms = many
    curve = Curve([known(s, SETTING) for s in specs], ms)
    curve.consider_trees()
    assert curve.trees is not None
    names = list(known(specs[0], SETTING).features)
    x, rising = tree_inputs([known(specs[0], SETTING)])
    assert {n for n, up in zip(names, rising, strict=True) if up} == {*PHYSICS, "tokens", "in", "out"}
    for column in np.flatnonzero(rising):
        walk = np.repeat(x, 40, axis=0)
        walk[:, column] = x[0, column] * np.geomspace(0.2, 5, 40)
        assert (np.diff(curve.trees.predict(walk)[0]) >= -1e-12).all()


def test_a_restored_model_is_the_one_fitted(many):
    specs = [*many[0], *GRID, ffn(96, 384, activation="relu")]
    model = fitted(specs, np.concatenate([many[1], physical_ms(specs[len(many[0]) :])]))
    values, arrays = model.state()
    assert all(array.dtype != object for array in arrays.values())
    again = OpModel()
    again.restore(json.loads(json.dumps(values)), arrays)
    asked = [*specs, ffn(150, 500), ffn(5000, 5000), linear(77, 333, 55)]
    for mine, theirs in zip(model.predict(asked), again.predict(asked), strict=True):
        assert np.array_equal(mine, theirs, equal_nan=True)
    assert again.errors == model.errors


def test_a_state_without_pieces_is_restored_as_work_of_one_piece():
    """Models fitted before pieces were counted: their ops have one each."""
    model = fitted(GRID, physical_ms(GRID))
    values, arrays = model.state()
    old = {n: a[:, : PHYSICS.index("pieces")] if n.endswith(".physics") else a for n, a in arrays.items()}
    assert any(old[n].shape != arrays[n].shape for n in arrays)
    again = OpModel()
    again.restore(values, old)
    assert np.array_equal(model.predict([ffn(150, 500)]), again.predict([ffn(150, 500)]))


def test_it_answers_hundreds_of_ops_at_once(many):
    model = fitted(many[0], many[1], trees=False)
    model.predict(many[0])
    started = time.thread_time()  # what others do on this machine is not counted
    model.predict(many[0])
    assert time.thread_time() - started < 0.5  # seen: 5 ms


@pytest.mark.parametrize(("specs", "ms"), [([], []), (GRID[:2], [1.0]), (GRID[:2], [1.0, 0.0]), (GRID[:1], [float("nan")])])
def test_rows_without_latencies_are_refused(specs, ms):
    with pytest.raises(UsageError, match="needs rows, each with a positive latency"):
        OpModel().fit(specs, np.array(ms), SETTING)


def test_rows_measured_twice_are_averaged():
    specs = [*GRID, GRID[0]]
    ms = np.append(physical_ms(GRID), physical_ms(GRID)[0] * 1.21)
    assert fitted(specs, ms).predict([GRID[0]])[0][0] == pytest.approx(physical_ms(GRID)[0] * 1.1)
