"""A BERT of two layers with random weights and a tokenizer of a few words, as `transformers` writes them: no download."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hwbench.accuracy.supernet.bert.folder import EncoderConfig, FolderTokenizer
from hwbench.accuracy.supernet.bert.sentences import Encoded, Sentences, encoded

LAYERS, DIM, HEADS, HIDDEN, POSITIONS = 2, 32, 4, 64, 40
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
GOOD, BAD, OTHER = ("good", "fine", "great"), ("bad", "poor", "awful"), ("film", "plot", "a", "the", "very", "was", "it")
WORDS = (*SPECIAL, *GOOD, *BAD, *OTHER, "##s", "##ly")
CLASSES = ("bad", "good")
CONFIG = EncoderConfig(len(WORDS), POSITIONS, DIM, LAYERS, HEADS, HIDDEN, "gelu", 1e-12)


def reference(labels: Sequence[str] = CLASSES, seed: int = 0, **changed: Any) -> Any:
    """As `transformers` has it, with weights that tell every parameter: fresh scales and shifts would hide a wrong slice."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    sizes = {
        "vocab_size": len(WORDS), "hidden_size": DIM, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "intermediate_size": HIDDEN, "max_position_embeddings": POSITIONS,
    }  # fmt: skip
    names = dict(enumerate(labels))
    config = transformers.BertConfig(**{**sizes, **changed}, id2label=names, label2id={name: i for i, name in names.items()})
    model = transformers.BertForSequenceClassification(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 1.0 if parameter.ndim == 1 or "embeddings" in name else 2 * parameter.shape[-1] ** -0.5
            parameter.copy_(("LayerNorm.weight" in name) + 0.3 * scale * torch.randn(parameter.shape, generator=generator))
            if parameter.ndim > 1 and "embeddings" not in name:
                parameter.mul_(3)
    return model


def tokenizer() -> Any:
    """Whole words and two endings."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    first, last = ("[CLS]", WORDS.index("[CLS]")), ("[SEP]", WORDS.index("[SEP]"))
    made.post_processor = tokenizers.processors.BertProcessing(last, first)
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **named)


def written(folder: Path, model: Any = None) -> Path:
    """A folder with model and tokenizer."""
    (model or reference()).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def lines(n: int, seed: int) -> list[tuple[str, str]]:
    """(sentence, label): the label is what the only telling word says."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n):
        label = CLASSES[int(rng.integers(2))]
        words = [*rng.choice(OTHER, int(rng.integers(2, 12))), str(rng.choice(GOOD if label == "good" else BAD))]
        found.append((" ".join(rng.permutation(words)), label))
    return found


def tsv(path: Path, n: int, seed: int) -> Path:
    """As a file."""
    path.write_text("sentence\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in lines(n, seed)))
    return path


def data(folder: Path, n: int = 96, seed: int = 1) -> Encoded:
    """As token ids, by the folder's tokenizer."""
    reader = FolderTokenizer(folder, POSITIONS, len(WORDS))
    found = lines(n, seed)
    told = Sentences(folder, tuple((text,) for text, _ in found), tuple(label for _, label in found))
    return encoded(told, CLASSES, reader.encode, reader.padding)


def datasets(folder: Path) -> Path:
    """As public sentiment data lie in a folder: labels are 0 and 1."""
    (folder / "sst2").mkdir(parents=True)
    for n, name in ((64, "train"), (40, "dev"), (30, "test")):
        rows = "".join(f"{text}\t{CLASSES.index(label)}\n" for text, label in lines(n, n))
        (folder / "sst2" / f"sentences_{name}.tsv").write_text("sentence\tlabel\n" + rows)
    return folder
