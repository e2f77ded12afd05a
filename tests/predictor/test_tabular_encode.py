"""Columns as numbers: what goes in can be read from what comes out."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwbench.predictor.tabular import encode

texts = st.sampled_from(["a", "b", "c=d"])
numbers = st.floats(-1e6, 1e6)


@given(
    st.lists(
        st.tuples(numbers, st.booleans(), texts, st.lists(numbers, max_size=4), st.lists(texts, max_size=20)),
        min_size=1,
        max_size=9,
    )
)
def test_encoding_keeps_what_columns_say(rows):
    names = ("number", "flag", "text", "numbers", "texts")
    types = (pa.float64(), pa.bool_(), pa.string(), pa.list_(pa.float64()), pa.list_(pa.string()))
    data = pa.table([pa.array([row[i] for row in rows], type_) for i, type_ in enumerate(types)], names=names)
    encodings = encode.describe(data, names)
    x = encode.encode(data, encodings)
    feature = {name: x[:, i] for i, name in enumerate(name for each in encodings for name in each.names)}
    assert x.shape == (len(rows), len(feature))
    longest = max(len(row[3]) for row in rows)
    for i, (number, flag, text, many, words) in enumerate(rows):
        assert (feature["number"][i], feature["flag"][i], feature[f"text={text}"][i]) == (number, flag, 1)
        assert sum(feature[name][i] for name in feature if name.startswith("text=")) == 1
        assert [feature[f"numbers[{k}]"][i] for k in range(longest)] == many + [0] * (longest - len(many))
        assert feature["numbers.length"][i] == len(many)
        assert feature["numbers.sum"][i] == pytest.approx(sum(many), abs=1e-6)
        assert (feature["numbers.min"][i], feature["numbers.max"][i]) == (min(many, default=0), max(many, default=0))
        assert feature["texts.length"][i] == len(words)
        assert all(feature[f"texts.count={word}"][i] == words.count(word) for word in words)
    # The stored form of an encoding gives the same features; each row alone too.
    again = [encode.Encoding(e.column, e.kind, tuple(json.loads(json.dumps(e.levels))), e.positions) for e in encodings]
    assert np.array_equal(np.vstack([encode.encode(data.slice(i, 1), again) for i in range(len(rows))]), x)
