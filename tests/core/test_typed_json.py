"""JSON objects as dataclasses: what fits comes back as it was, what does not is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwbench.core.errors import DataError
from hwbench.core.typed_json import Record, decode, encode


@dataclass(frozen=True)
class Pair:
    a: int
    b: str = "b"


@dataclass(frozen=True, kw_only=True)
class Thing(Record):
    name: str
    size: float | None
    parts: tuple[Pair, ...] = ()
    by_name: Mapping[str, tuple[float, ...]] | None = None
    either: Pair | tuple[Pair, ...] | None = None
    anything: Any = None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
PAIRS = st.fixed_dictionaries({"a": st.integers(), "b": st.text(max_size=3)})
THINGS = st.fixed_dictionaries(
    {"name": st.text(max_size=3), "size": NUMBERS | st.none()},
    optional={
        "parts": st.lists(PAIRS, max_size=3),
        "by_name": st.none() | st.dictionaries(st.text(max_size=2), st.lists(NUMBERS, max_size=3), max_size=2),
        "either": st.none() | PAIRS | st.lists(PAIRS, max_size=2),
        "anything": JSON,
        "of a later version": JSON,
    },
)


@given(THINGS, st.randoms())
def test_any_document_comes_back_in_its_order(document, random):
    names = list(document)
    random.shuffle(names)
    document = {name: document[name] for name in names}
    again = encode(decode(Thing, document, "thing.json"))
    assert again == document
    assert list(again) == names


def test_a_record_that_was_not_read_states_all_its_fields():
    thing = Thing(name="x", size=1.5, parts=(Pair(1),), rest={"more": 2})
    assert encode(thing) == {
        "name": "x", "size": 1.5, "parts": [{"a": 1, "b": "b"}], "by_name": None, "either": None, "anything": None, "more": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": 3}, "'name' must be text, it is 3"),
        ({"name": None}, "'name' must be text, it is null"),
        ({"size": "large"}, "'size' must be a number or null, it is 'large'"),
        ({"size": True}, "'size' must be a number or null, it is True"),
        ({"parts": {}}, "'parts' must be a list, it is an object"),
        ({"parts": [{"a": 1}, {"a": 1.5}]}, "'parts[1].a' must be a whole number, it is 1.5"),
        ({"parts": [{"b": ""}]}, "states no 'parts[0].a'"),
        ({"parts": [{"a": 1, "c": 2}]}, "'parts[0].c' is not known; was it made by a newer hwbench?"),
        ({"by_name": {"x": [1, None]}}, "'by_name.x[1]' must be a number, it is null"),
        ({"either": 4}, "'either' must be an object or a list or null, it is 4"),
    ],
)
def test_what_does_not_fit_is_named(change, said):
    with pytest.raises(DataError) as error:
        decode(Thing, {"name": "x", "size": None, **change}, "thing.json")
    assert str(error.value).startswith("thing.json")
    assert said in str(error.value)


def test_a_field_without_a_default_must_be_stated():
    with pytest.raises(DataError, match=r"thing\.json states no 'size'"):
        decode(Thing, {"name": "x"}, "thing.json")
    with pytest.raises(DataError, match=r"must be an object, it is a list"):
        decode(Thing, [], "thing.json")
