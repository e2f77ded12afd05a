"""Subnets of an encoder: each computes what `transformers` computes with its weights alone, and so does its ONNX model."""

from __future__ import annotations

import json
import shutil

import numpy as np
import onnx
import onnxruntime
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from hwbench.accuracy.supernet.bert.encoder import ElasticEncoder, accuracy_of, logits_of  # noqa: E402
from hwbench.accuracy.supernet.bert.folder import FolderTokenizer, fingerprint_of, read_config, read_weights  # noqa: E402
from hwbench.accuracy.supernet.bert.onnx_model import masked_nodes, write_onnx  # noqa: E402
from hwbench.core.errors import DataError, UsageError  # noqa: E402
from hwbench.space.encoder import Widths  # noqa: E402
from tests.accuracy.supernet.bert import encoders  # noqa: E402

SUBNETS = [
    Widths((4, 4), (64, 64)),
    Widths((1, 1), (4, 4)),
    Widths((3, 1), (20, 64)),
    Widths((2,), (36,)),
    Widths((4,), (64,)),
]
LIMIT = 1e-5


def feed(lengths=(9, 4, 1, 12), seed: int = 5):
    """Ids and mask of texts of these lengths."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, len(encoders.WORDS), (len(lengths), max(lengths)))
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    return ids, mask


def cut(model, widths: Widths):
    """The same subnet made of `transformers`' own modules: matrices cut by hand, nothing of hwbench."""
    size = encoders.DIM // encoders.HEADS

    def linear(old, rows, columns):
        new = torch.nn.Linear(columns, rows)
        new.weight.data, new.bias.data = old.weight.data[:rows, :columns].clone(), old.bias.data[:rows].clone()
        return new

    kept = model.bert.encoder.layer[: widths.depth]
    for layer, heads, hidden in zip(kept, widths.heads, widths.hidden, strict=True):
        own = layer.attention.self
        for name in ("query", "key", "value"):
            setattr(own, name, linear(getattr(own, name), heads * size, encoders.DIM))
        own.num_attention_heads, own.all_head_size = heads, heads * size
        layer.attention.output.dense = linear(layer.attention.output.dense, encoders.DIM, heads * size)
        layer.intermediate.dense = linear(layer.intermediate.dense, hidden, encoders.DIM)
        layer.output.dense = linear(layer.output.dense, encoders.DIM, hidden)
    model.bert.encoder.layer = kept
    model.config.num_hidden_layers = widths.depth
    return model


@pytest.mark.parametrize("widths", SUBNETS, ids=str)
@torch.no_grad()
def test_a_subnet_is_what_transformers_computes_with_matrices_cut_by_hand(net, widths):
    ids, mask = map(torch.from_numpy, feed())
    net.activate(widths)
    ours = net(ids, mask)
    theirs = cut(encoders.reference(), widths)(input_ids=ids, attention_mask=mask).logits
    assert ours.std() > 0.1, "outputs this flat prove nothing"
    torch.testing.assert_close(ours, theirs, atol=LIMIT, rtol=0)


@pytest.mark.parametrize("widths", SUBNETS, ids=str)
@torch.no_grad()
def test_extracted_and_exported_it_computes_the_same(net, widths, tmp_path):
    net.activate(widths)
    alone = net.plain()
    assert alone.largest == widths
    assert sum(p.numel() for p in alone.parameters()) <= sum(p.numel() for p in net.parameters())
    write_onnx(net, tmp_path / "net.onnx")
    onnx.checker.check_model(str(tmp_path / "net.onnx"), full_check=True)
    session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    assert [(each.name, each.type, each.shape) for each in session.get_inputs()] == [
        (name, "tensor(int64)", ["batch", "length"]) for name in ("input_ids", "attention_mask")
    ]
    assert [each.name for each in session.get_outputs()] == ["logits"]
    for lengths in ((9, 4, 1, 12), (7,), (3, 3), (encoders.POSITIONS,)):
        ids, mask = feed(lengths)
        ours = net(torch.from_numpy(ids), torch.from_numpy(mask)).numpy()
        np.testing.assert_allclose(alone(torch.from_numpy(ids), torch.from_numpy(mask)).numpy(), ours, atol=LIMIT)
        told = session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
        np.testing.assert_allclose(told, ours, atol=LIMIT)


@torch.no_grad()
def test_what_is_masked_changes_nothing(net):
    ids, mask = feed((5,))
    longer = np.concatenate([ids, [[7, 8, 9]]], axis=1), np.concatenate([mask, [[0, 0, 0]]], axis=1)
    short, long = (net(*map(torch.from_numpy, each)) for each in ((ids, mask), longer))
    torch.testing.assert_close(short, long, atol=LIMIT, rtol=0)


def test_activating_copies_nothing_and_what_is_not_active_learns_nothing(net):
    before = {name: parameter.data_ptr() for name, parameter in net.named_parameters()}
    net.activate(Widths((3,), (20,)))
    assert {name: parameter.data_ptr() for name, parameter in net.named_parameters()} == before
    net(*map(torch.from_numpy, feed())).square().sum().backward()
    layer, inner = net.layers[0], 3 * encoders.DIM // encoders.HEADS
    for part, rows, columns in (
        ("query", inner, encoders.DIM),
        ("projection", encoders.DIM, inner),
        ("down", encoders.DIM, 20),
    ):
        grad = layer.get_submodule(part).weight.grad
        assert (grad[:rows, :columns] != 0).any()
        assert not grad[rows:].any()
        assert not grad[:, columns:].any()
    assert all(parameter.grad is None for parameter in net.layers[1].parameters())


@pytest.mark.parametrize("widths", [Widths((5, 4), (64, 64)), Widths((4,) * 3, (64,) * 3), Widths((0, 1), (64, 64))], ids=str)
def test_what_does_not_fit_is_refused(net, widths):
    with pytest.raises(UsageError, match="does not fit into"):
        net.activate(widths)


def test_a_classifier_is_taken_over_where_it_tells_the_same_classes(folder):
    stored = encoders.reference().classifier.weight.detach()
    for classes, expected in (("bad", "good"), stored), (("good", "bad"), stored.flip(0)):
        assert torch.equal(ElasticEncoder.pretrained(folder, classes).classifier.weight, expected)
    other = ElasticEncoder.pretrained(folder, ("a", "b", "c")).classifier.weight
    assert other.shape == (3, encoders.DIM)
    assert torch.equal(other, ElasticEncoder.pretrained(folder, ("a", "b", "c")).classifier.weight)
    assert not torch.equal(other, ElasticEncoder.pretrained(folder, ("a", "b", "c"), seed=1).classifier.weight)


@torch.no_grad()
def test_logits_come_in_the_order_of_the_sentences(net, data):
    each = [
        net(*(torch.from_numpy(part) for part in (one.ids, one.mask))).numpy()[0]
        for one in map(data.batch, ([i] for i in range(9)))
    ]
    np.testing.assert_allclose(logits_of(net, data)[:9], each, atol=LIMIT)
    right = np.where(np.arange(len(data)) % 4 == 0, 1 - data.labels, data.labels)
    assert accuracy_of(np.eye(2)[right], data) == 75.0


def test_the_nodes_of_the_mask_end_at_the_softmax(net, tmp_path):
    write_onnx(net, tmp_path / "net.onnx")
    kept = set(masked_nodes(tmp_path / "net.onnx"))
    kinds = [node.op_type for node in onnx.load(tmp_path / "net.onnx").graph.node if node.name in kept]
    assert sorted(kinds) == sorted(["Cast", "Sub", "Mul", "Unsqueeze", *["Add", "Softmax"] * encoders.LAYERS])


def changed(folder, tmp_path, name: str, **values):
    """A copy of the folder with another configuration."""
    copy = shutil.copytree(folder, tmp_path / name)
    document = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**document, **values}))
    return copy


def test_models_that_are_not_known_are_refused_in_one_line(folder, tmp_path):
    for values, said in (
        ({"model_type": "gpt2"}, "family 'gpt2'; known here is: bert"),
        ({"hidden_act": "gelu_new"}, "activation 'gelu_new'"),
        ({"position_embedding_type": "relative_key"}, "relative_key positions"),
        ({"is_decoder": True}, "is a decoder: its tokens do not see later ones"),
    ):
        with pytest.raises(UsageError, match=said):
            read_config(changed(folder, tmp_path, str(len(said)), **values))
    deeper = changed(folder, tmp_path, "deeper", num_hidden_layers=3)
    with pytest.raises(DataError, match=r"lacks 16 weights .* the first: bert.encoder.layer.2"):
        ElasticEncoder.pretrained(deeper, encoders.CLASSES)
    shallower = changed(folder, tmp_path, "shallower", num_hidden_layers=1)
    with pytest.raises(DataError, match=r"more layers than the 1 that its configuration says: bert.encoder.layer.1"):
        ElasticEncoder.pretrained(shallower, encoders.CLASSES)
    for values in ({"num_hidden_layers": 0}, {"num_attention_heads": 5}):
        with pytest.raises(DataError, match="is no network: sizes are at least 1, and heads divide the dim"):
            read_config(changed(folder, tmp_path, *values, **values))
    wider = changed(folder, tmp_path, "wider", intermediate_size=128)
    with pytest.raises(UsageError, match=r"layers.0.up.weight is \(64, 32\), its configuration says \(128, 32\)"):
        ElasticEncoder.pretrained(wider, encoders.CLASSES)


def test_folders_that_lack_a_part_are_refused_in_one_line(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "tokenizer.json").unlink()
    with pytest.raises(UsageError, match=r"no tokenizer in .*: it needs tokenizer.json or vocab.txt"):
        FolderTokenizer(copy, encoders.POSITIONS, len(encoders.WORDS))
    (copy / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(DataError, match="not readable safetensors"):
        read_weights(copy, encoders.CONFIG)
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    for reading in (lambda: read_weights(copy, encoders.CONFIG), lambda: fingerprint_of(copy)):
        with pytest.raises(UsageError, match=r"There is no model.safetensors in .*is a pickle, which is never loaded"):
            reading()
    with pytest.raises(UsageError, match=r"no model configuration at"):
        read_config(tmp_path)


def test_weights_that_are_no_numbers_are_refused(folder, tmp_path):
    from safetensors.torch import load_file, save_file

    copy = shutil.copytree(folder, tmp_path / "copy")
    weights = load_file(copy / "model.safetensors")
    weights["bert.encoder.layer.1.output.dense.bias"][3] = float("nan")
    save_file(weights, copy / "model.safetensors")
    with pytest.raises(DataError, match=r"bert.encoder.layer.1.output.dense.bias holds values that are no numbers"):
        read_weights(copy, encoders.CONFIG)


def test_a_tokenizer_of_another_model_is_refused(folder):
    with pytest.raises(DataError, match=f"it tells tokens up to {len(encoders.WORDS) - 1}, the model knows 9"):
        FolderTokenizer(folder, encoders.POSITIONS, 9)


def test_texts_are_cut_to_what_the_model_can_read_and_pairs_are_read_together(folder):
    reader = FolderTokenizer(folder, encoders.POSITIONS, len(encoders.WORDS))
    (long,) = reader.encode([(" ".join(["film"] * 100),)])
    assert len(long) == encoders.POSITIONS
    (pair,) = reader.encode([("the film", "it was great")])
    assert [encoders.WORDS[i] for i in pair] == ["[CLS]", "the", "film", "[SEP]", "it", "was", "great", "[SEP]"]
