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
WHOLE = st.integers(-(2**63), 2**63)
NUMBERS = WHOLE | st.floats(allow_nan=False, allow_infinity=False)
PAIRS = st.fixed_dictionaries({"a": WHOLE, "b": st.text(max_size=3)})
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
        ({"name": 3}, "expected text, got 3, at name;"),
        ({"name": None}, "expected text, got null, at name;"),
        ({"size": "large"}, "expected a number or null, got text 'large', at size;"),
        ({"size": True}, "expected a number or null, got true, at size;"),
        ({"size": float("inf")}, "expected a number or null, got inf, at size;"),
        ({"size": 10**400}, "expected a number or null, got 1000"),
        ({"parts": [{"a": 2**64}]}, "expected a whole number, got 18446744073709551616, at parts[0].a;"),
        ({"name": ["x" * 500]}, "expected text, got a list, at name;"),
        ({"size": "x" * 500}, "got text 'xxx"),
        ({"parts": {}}, "expected a list, got an object, at parts;"),
        ({"parts": [{"a": 1}, {"a": 1.5}]}, "expected a whole number, got 1.5, at parts[1].a;"),
        ({"parts": [{"b": ""}]}, "expected a whole number, got nothing, at parts[0].a;"),
        ({"parts": [{"a": 1, "c": 2}]}, "parts[0].c is not known; was it made by a newer hwbench?"),
        ({"by_name": {"x": [1, None]}}, "expected a number, got null, at by_name.x[1];"),
        ({"either": 4}, "expected an object or a list or null, got 4, at either;"),
    ],
)
def test_what_does_not_fit_is_named(change, said):
    with pytest.raises(DataError) as error:
        decode(Thing, {"name": "x", "size": None, **change}, "thing.json")
    assert str(error.value).startswith("thing.json")
    assert said in str(error.value)
    assert len(str(error.value)) < 200


def test_a_field_without_a_default_must_be_stated():
    with pytest.raises(DataError, match=r"thing\.json: expected a number or null, got nothing, at size"):
        decode(Thing, {"name": "x"}, "thing.json")
    with pytest.raises(DataError, match=r"expected an object, got a list, at its top"):
        decode(Thing, [], "thing.json")
