"""Files of sentences as people write them, and batches that hold every sentence once."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.accuracy.supernet.bert.sentences import Encoded, classes_of, encoded, read
from hwbench.core.errors import UsageError


def file(tmp_path, text: str, name: str = "some.tsv"):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


def test_a_sentence_and_its_label_whatever_else_there_is(tmp_path):
    found = read(file(tmp_path, '\ufefffine\tsentence\tlabel\r\nx\t"Who, me?" \tHUM\r\ny\tHow\u2028far?\tNUM\r\n'))
    assert found.texts == (('"Who, me?" ',), ("How\u2028far?",))
    assert found.labels == ("HUM", "NUM")


def test_pairs(tmp_path):
    found = read(file(tmp_path, "label\tsentence1\tsentence2\n1\ta\tb\n0\tc\td\n"))
    assert found.texts == (("a", "b"), ("c", "d"))


def test_numbers_are_ordered_by_size_and_strings_behind_them(tmp_path):
    rows = "".join(f"s\t{label}\n" for label in ("10", "9", "nan", "b", "a", "-1", "2.5"))
    assert read(file(tmp_path, "sentence\tlabel\n" + rows)).classes == ("-1", "2.5", "9", "10", "a", "b", "nan")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("text\tlabel\na\t1\n", "starts with the columns text, label; it needs a header with sentence"),
        ("", "some.tsv is empty"),
        ("sentence\tlabel\n", "has a header and no sentences"),
        ("sentence\tlabel\na\t1\nb\n", "line 3: 1 columns, the header has 2"),
        ("sentence\tlabel\na\t1\nb\t \n", "line 3: the label is empty"),
    ],
)
def test_a_file_that_is_not_whole_is_refused(tmp_path, text, said):
    with pytest.raises(UsageError, match=said):
        read(file(tmp_path, text))


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read(tmp_path / "none.tsv")
    (tmp_path / "latin.tsv").write_bytes("sentence\tlabel\nMünchen\t1\n".encode("latin-1"))
    with pytest.raises(UsageError, match="it is no UTF-8"):
        read(tmp_path / "latin.tsv")


def test_labels_must_be_those_of_the_training(tmp_path):
    train = read(file(tmp_path, "sentence\tlabel\na\tx\nb\ty\nc\tx\nd\ty\n", "train.tsv"))
    assert classes_of(train, read(file(tmp_path, "sentence\tlabel\na\ty\n", "dev.tsv"))) == ("x", "y")
    with pytest.raises(UsageError, match=r"other.tsv has the label 'z', which .*train.tsv has not; its labels are x, y"):
        classes_of(train, read(file(tmp_path, "sentence\tlabel\na\tz\n", "other.tsv")))
    with pytest.raises(UsageError, match=r"has 2 sentences per row"):
        classes_of(train, read(file(tmp_path, "sentence1\tsentence2\tlabel\na\tb\tx\n", "pairs.tsv")))
    with pytest.raises(UsageError, match=r"All sentences of .* are labelled 'x'"):
        classes_of(read(file(tmp_path, "sentence\tlabel\na\tx\nb\tx\n", "one.tsv")))


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([f"{n / 7:.3f}" for n in range(30)] * 3, r"are scores: 30 different numbers \(0.000, 0.143, .*round them"),
        ([f"id{n}" for n in range(30)], r"has 30 labels for 30 sentences \(id0, id1, .*at least two sentences"),
        ([str(n) for n in range(30)] * 3, None),
        (["0.5", "1", "1.5"] * 3, None),
        (["very good", "not so good"] * 3, None),
    ],
)
def test_labels_are_classes_and_no_scores(tmp_path, labels, said):
    train = read(file(tmp_path, "sentence\tlabel\n" + "".join(f"a\t{label}\n" for label in labels)))
    if said is None:
        assert set(classes_of(train)) == set(labels)
    else:
        with pytest.raises(UsageError, match=said):
            classes_of(train)


def some(n: int, seed: int = 0) -> Encoded:
    lengths = np.random.default_rng(seed).integers(1, 60, n)
    return Encoded(tuple(np.arange(1, length + 1) for length in lengths), np.arange(n), 0)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 3300])
def test_an_epoch_has_every_sentence_once_in_batches_of_like_length(n):
    data = some(n)
    batches = data.epoch(32, np.random.default_rng(1))
    assert sorted(np.concatenate(batches).tolist()) == list(range(n))
    assert len(batches) == -(-n // 32)
    assert all(len(batch) <= 32 for batch in batches)
    again, other = data.epoch(32, np.random.default_rng(1)), data.epoch(32, np.random.default_rng(2))
    assert [batch.tolist() for batch in again] == [batch.tolist() for batch in batches]
    if n > 1000:
        assert [batch.tolist() for batch in other] != [batch.tolist() for batch in batches]
        padded = sum(len(batch) * data.lengths[batch].max() for batch in batches)
        assert padded < 1.1 * data.lengths.sum(), "random batches fill up by 60 %"


def test_a_batch_is_filled_up_and_masked():
    data = Encoded((np.array([2, 7, 3]), np.array([2, 3])), np.array([1, 0]), 9)
    batch = data.batch([0, 1])
    assert batch.ids.tolist() == [[2, 7, 3], [2, 3, 9]]
    assert batch.mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch.labels.tolist() == [1, 0]
    assert [each.rows.tolist() for each in data.in_order(1)] == [[1], [0]]


def test_labels_become_places_in_the_classes(tmp_path):
    told = read(file(tmp_path, "sentence\tlabel\nab\ty\nc\tx\n"))
    found = encoded(told, ("x", "y"), lambda texts: [list(map(ord, text[0])) for text in texts], 0)
    assert found.labels.tolist() == [1, 0]
    assert [each.tolist() for each in found.ids] == [[97, 98], [99]]
