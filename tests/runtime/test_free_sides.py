"""Free sides: which of them are one, what fixes them, and what is suggested where nothing does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwbench.runtime.base import FreeSides, fixed_shapes, is_free, is_named, random_inputs

NAMELESS = ["?", "", "None", "-1", "unk__12", None, -1, 0]


def suggested(declared: dict[str, list]) -> dict[str, list[int]]:
    with pytest.raises(FreeSides) as refused:
        fixed_shapes(declared, {})
    return refused.value.suggested


@pytest.mark.parametrize("side", NAMELESS)
def test_a_side_without_a_name_ties_nothing(side):
    declared = {"x": [side, side, 4], "y": [side, 2]}
    assert fixed_shapes(declared, {"x": (5, 7, 4), "y": (3, 2)}) == ({"x": [5, 7, 4], "y": [3, 2]}, {})
    with pytest.raises(FreeSides, match=r"^input 'y' \[\?, 2\] has no fixed shape; give --shape y=1,2$"):
        fixed_shapes(declared, {"x": (5, 7, 4)})


def test_a_name_ties_all_sides_of_that_name():
    declared = {"x": ["n", 4], "y": [2, "n"], "z": ["m"]}
    assert fixed_shapes(declared, {"x": (5, 4), "z": (3,)}) == ({"x": [5, 4], "y": [2, 5], "z": [3]}, {"n": 5, "m": 3})


def test_a_name_of_two_sizes_ties_nothing():
    """Exporters give sides that have nothing in common one label."""
    declared = {"x": ["n", 4], "y": [2, "n"], "z": ["n"]}
    whole = {"x": (5, 4), "y": (2, 6), "z": (5,)}
    assert fixed_shapes(declared, whole) == ({name: list(shape) for name, shape in whole.items()}, {})
    with pytest.raises(FreeSides, match=r"^input 'z' \[n\] has no fixed shape"):
        fixed_shapes(declared, {"x": (5, 4), "y": (2, 6)})


def test_a_scalar_input_needs_no_shape():
    assert fixed_shapes({"x": [], "y": [2]}, {"x": ()}) == ({"x": [], "y": [2]}, {})


def test_every_input_that_lacks_a_size_is_named_once_with_what_a_shell_reads():
    declared = {"ids": ["batch", "seq"], "my mask": ["batch", "seq"], "w": [3]}
    with pytest.raises(FreeSides) as refused:
        fixed_shapes(declared, {})
    assert refused.value.what == "inputs 'ids' [batch, seq], 'my mask' [batch, seq] have no fixed shape"
    assert str(refused.value) == f"{refused.value.what}; give --shape ids=1,128 --shape 'my mask=1,128'"
    assert refused.value.suggested == {"ids": [1, 128], "my mask": [1, 128]}


@pytest.mark.parametrize(
    ("name", "sides", "shape"),
    [
        ("x", ["batch_size", "sequence_length"], [1, 128]),
        ("x", ["N", 3, "height", "width"], [1, 3, 224, 224]),
        ("x", ["bs", "C", "H", "W"], [1, 3, 224, 224]),
        ("x", [None, "num_channels", None, None], [1, 3, 224, 224]),
        ("x", ["?", "?", "?", "?"], [1, 3, 224, 224]),
        ("x", ["unk__1", "unk__2", "unk__3", 3], [1, 224, 224, 3]),
        ("x", [-1, 3, 64, 0], [1, 3, 64, 224]),
        ("x", ["batch", "samples"], [1, 16000]),
        ("input_values", ["batch_size", "sequence_length"], [1, 16000]),
        ("waveform", [None, None], [1, 16000]),
        ("x", ["time", "batch", 80], [128, 1, 80]),
        ("x", ["tokens"], [128]),
        ("input_ids", [None, None], [1, 128]),
        ("x", ["s0", "s1"], [1, 1]),
        ("past_key_values.0.key", ["batch", 8, "past_sequence_length", 64], [1, 8, 1, 64]),
        ("past.0", [None, 8, None, 64], [1, 8, 1, 64]),
        ("mask", ["batch", "past_sequence_length + sequence_length"], [1, 129]),
        ("mask", ["batch", "total_sequence_length"], [1, 129]),
    ],
)
def test_what_a_user_would_give_is_suggested(name, sides, shape):
    assert suggested({name: sides}) == {name: shape}


def test_suggestions_agree_with_each_other_and_with_what_was_given():
    with pytest.raises(FreeSides) as refused:
        fixed_shapes({"x": ["n", "k"], "y": ["k", "n + k"], "z": ["n"]}, {"z": (7,)})
    assert refused.value.suggested == {"x": [7, 1], "y": [1, 8]}


SIDE = st.sampled_from([*NAMELESS, "batch", "seq", "a", "b", "a + b", "past", 1, 3, 5])


@given(st.dictionaries(st.text(max_size=8), st.lists(SIDE, max_size=5), max_size=5))
def test_what_is_suggested_is_accepted_and_fixes_everything(declared):
    open_inputs = {name for name, sides in declared.items() if any(map(is_free, sides))}
    shapes = suggested(declared) if open_inputs else {}
    assert set(shapes) == open_inputs
    found, sizes = fixed_shapes(declared, shapes)
    assert set(sizes) == {side for sides in declared.values() for side in sides if is_named(side)}
    for name, sides in declared.items():
        for side, size in zip(sides, found[name], strict=True):
            assert size >= 1
            assert is_free(side) or side == size
            assert not is_named(side) or sizes[side] == size


# Values


@pytest.mark.parametrize(
    ("dtype", "value", "held"),
    [("int64", 16000, 16000), ("float32", 0.5, 0.5), ("bool", 1, True), ("uint8", 255, 255), ("float16", -2, -2.0)],
)
def test_an_input_is_filled_with_one_number(dtype, value, held):
    found = random_inputs({"x": ((2, 3), dtype), "y": ((), dtype)}, {"x": [value], "y": [value]})
    assert (found["x"].dtype, found["x"].shape, found["y"].shape) == (np.dtype(dtype), (2, 3), ())
    assert (found["x"] == held).all()
    assert found["y"] == held


@pytest.mark.parametrize(("dtype", "value"), [("int64", 1.5), ("uint8", 256), ("int8", -129), ("bool", 2), ("float16", 1e6)])
def test_a_number_that_the_type_cannot_hold_is_refused(dtype, value):
    said = f"input 'x' is {dtype}, which cannot hold --fill x={value}; give another number"
    with pytest.raises(ValueError, match=r".") as refused:
        random_inputs({"x": ((2,), np.dtype(dtype))}, {"x": [value]})
    assert str(refused.value) == said


def test_what_is_not_filled_stays_as_it_was_drawn():
    shapes = {"x": ((4,), "float32"), "n": ((50,), "int64")}
    assert (random_inputs(shapes, {"n": 9})["n"] == random_inputs(shapes, {"n": 9})["n"]).all()
    assert random_inputs(shapes, {"n": 9})["n"].max() > 1
    assert random_inputs(shapes, {})["n"].max() == 1
