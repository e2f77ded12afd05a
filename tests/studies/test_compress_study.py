"""Parts of the study of compress: what is halved, which formats, which sentences, and what is said of them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from hwbench.space.encoder import EncoderSizes, Widths  # noqa: E402
from hwbench.study import mixed_precision as mixed  # noqa: E402
from studies.compress import material, precision, report, table  # noqa: E402
from tests.accuracy.supernet.bert import encoders  # noqa: E402
from tests.accuracy.supernet.bert.conftest import folder, net  # noqa: E402, F401 - fixtures

SPACE = mixed.mixed_space(EncoderSizes(50, 40, 32, 8, 2, 16), Widths((4, 2, 1), (64, 32, 16)))


def test_every_second_layer_is_the_encoder_without_the_others(net):  # noqa: F811
    half = table.halved(net)
    assert half.widths.depth == -(-encoders.LAYERS // 2)
    ids = torch.tensor([[2, 5, 7, 3]])
    with torch.no_grad():
        found = half(ids, torch.ones_like(ids))
        net.layers = net.layers[::2]
        net.activate(Widths(*(getattr(net.widths, name)[::2] for name in ("heads", "hidden"))))
        torch.testing.assert_close(found, net(ids, torch.ones_like(ids)))


@pytest.mark.parametrize(
    ("pattern", "borders"), [("000000", 0), ("111111", 2), ("111000", 2), ("010101", 6), ("101010", 6), ("011001", 4)]
)
def test_borders_lie_where_the_format_changes(pattern, borders):
    column = precision.of_pattern(SPACE, np.array([each == "1" for each in pattern]))
    assert precision.changes(SPACE, column) == borders
    chosen = mixed.in_int8(SPACE, column)
    assert len(chosen) == pattern.count("1")
    assert (precision.of_blocks(SPACE, chosen) == column).all()


def test_no_sentence_of_test_is_learnt_or_chosen_by(tmp_path):
    (tmp_path / "trec").mkdir()
    rows = [f"what is {n} ?\t{n % 6}\tfine" for n in range(1300)]
    for name, part in (("train", rows), ("test", [*rows[:30], "What is 40 ?\t0\tfine"])):
        (tmp_path / "trec" / f"{name}.tsv").write_text("\n".join(["sentence\tlabel\tfine", *part, ""]))
    files = material._sentences(tmp_path, "trec", tmp_path / "out", tiny=False)
    parts = {name: [line.split("\t") for line in path.read_text().splitlines()[1:]] for name, path in files.items()}
    texts = {name: {text.lower() for text, _ in part} for name, part in parts.items()}
    assert len(parts["dev"]) == material.DEV
    assert len(parts["train"]) == 1300 - 31 - material.DEV
    assert not texts["test"] & (texts["train"] | texts["dev"])
    assert not texts["train"] & texts["dev"]
    assert {label for _, label in parts["train"]} == set(material.TREC)


def test_a_paired_interval_counts_the_same_sentences():
    assert report.paired([0, 1, 2], [0, 1, 2], 10) == "+0.00"
    told = report.paired(list(range(50)), list(range(60)), 100)
    assert told.startswith("+10.00 [+")
    low, high = (float(each) for each in told.partition("[")[2].strip("]").split(", "))
    assert 3 < low < 10 < high < 17


def test_an_interval_over_seeds_by_hand():
    assert report.interval(np.array([1.0, 2.0, 3.0])) == "+2.00 [-0.48, +4.48], 3 seeds"


def test_what_the_study_asks_names_the_teacher_as_compress_does(tmp_path):
    """A fine-tuned encoder is taken over between folders only where its checkpoint says the same of itself."""
    from hwbench.study.compress_inputs import Asked, teacher_identity

    one = Asked(**{**dict.fromkeys(Asked.__dataclass_fields__, 0), "model": "m", "train": "t", "epochs": 2, "seed": 1})
    other = Asked(**{**one.__dict__, "importance": "l1", "supernet_epochs": 7, "budget": "0.5x"})
    assert teacher_identity(one) == teacher_identity(other)
    assert teacher_identity(one) != teacher_identity(SimpleNamespace(**{**one.__dict__, "epochs": 3}))
