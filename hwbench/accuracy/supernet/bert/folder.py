"""The folder of a BERT-family encoder as `transformers` writes it: config.json, model.safetensors, tokenizer.

Configuration and weights are read as they stand in their files, so that what is loaded is known name by name; the tokenizer
comes through `transformers`. Weights in pickles are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hwbench.accuracy.supernet.bert.sentences import Encode
from hwbench.core.command import extra, hint
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import read_json
from hwbench.space.encoder import Widths

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", ("tokenizer.json", "vocab.txt")
FAMILY = "bert"
ACTIVATIONS = ("gelu", "relu")
PREFIX = "bert."
"""Of weights in a folder that has a head; without one, names begin at the embeddings."""
SEGMENTS = "embeddings.token_type_embeddings.weight"
STEM = {
    "word.weight": "embeddings.word_embeddings.weight",
    "position.weight": "embeddings.position_embeddings.weight",
    "norm.weight": "embeddings.LayerNorm.weight",
    "norm.bias": "embeddings.LayerNorm.bias",
}
LAYER = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "projection": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "norm": "output.LayerNorm",
}
"""Our name of a part -> theirs."""
POOLER, CLASSIFIER = "pooler.dense", "classifier"


@dataclass(frozen=True)
class EncoderConfig:
    """What config.json says of the network."""

    vocabulary: int
    positions: int
    dim: int
    layers: int
    heads: int
    hidden: int
    activation: str
    epsilon: float
    """Of layer norms."""
    labels: tuple[str, ...] = ()
    """Of the head in the folder, where it has one: the order of its logits."""

    @property
    def head_dim(self) -> int:
        """Channels of a head."""
        return self.dim // self.heads

    @property
    def widths(self) -> Widths:
        """Of the whole encoder."""
        return Widths((self.heads,) * self.layers, (self.hidden,) * self.layers)


def read_config(folder: str | Path) -> EncoderConfig:
    """The configuration.

    Raises:
        UsageError: it is no BERT-family encoder, or of a form that is not known here.
    """
    path = Path(folder) / CONFIG
    stored = read_json(path, "model configuration")
    family = stored.get("model_type") if isinstance(stored, dict) else None
    if family != FAMILY:
        raise UsageError(f"{path} is a model of the family '{family}'; known here is: {FAMILY}.")
    positions = stored.get("position_embedding_type") or "absolute"
    if positions != "absolute":
        raise UsageError(f"{path} has {positions} positions; known here are absolute ones.")
    if stored.get("hidden_act") not in ACTIVATIONS:
        raise UsageError(f"{path} has the activation '{stored.get('hidden_act')}'; known here are: {', '.join(ACTIVATIONS)}.")
    if stored.get("is_decoder"):
        raise UsageError(f"{path} is a decoder: its tokens do not see later ones. Known here are encoders.")
    try:
        labels = stored.get("id2label") or {}
        config = EncoderConfig(
            vocabulary=int(stored["vocab_size"]),
            positions=int(stored["max_position_embeddings"]),
            dim=int(stored["hidden_size"]),
            layers=int(stored["num_hidden_layers"]),
            heads=int(stored["num_attention_heads"]),
            hidden=int(stored["intermediate_size"]),
            activation=str(stored["hidden_act"]),
            epsilon=float(stored["layer_norm_eps"]),
            labels=tuple(str(labels[key]) for key in sorted(labels, key=int)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path} is no configuration of a {FAMILY} model ({type(error).__name__}: {error}).") from None
    sizes = {name: value for name, value in asdict(config).items() if isinstance(value, int)}
    if min(sizes.values()) < 1 or config.dim % config.heads:
        told = ", ".join(f"{name} {value}" for name, value in sizes.items())
        raise DataError(f"{path} is no network: sizes are at least 1, and heads divide the dim ({told}).")
    return config


@dataclass(frozen=True)
class Pretrained:
    """The weights of a folder by our names; heads that are missing are None."""

    weights: Mapping[str, Any]
    pooler: Mapping[str, Any] | None
    classifier: Mapping[str, Any] | None


def read_weights(folder: str | Path, config: EncoderConfig) -> Pretrained:
    """All weights as float32 tensors.

    The embedding of segment 0, which is that of every token here, is added to every position.

    Raises:
        UsageError: there is no model.safetensors.
        DataError: it lacks weights, has more layers than the configuration says, or weights that are no numbers.
    """
    path = Path(folder) / WEIGHTS
    stored = _stored(path)
    prefix = PREFIX if any(name.startswith(PREFIX) for name in stored) else ""
    names = {ours: prefix + theirs for ours, theirs in STEM.items()}
    for layer in range(config.layers):
        for ours, theirs in LAYER.items():
            for part in ("weight", "bias"):
                names[f"layers.{layer}.{ours}.{part}"] = f"{prefix}encoder.layer.{layer}.{theirs}.{part}"
    segments = prefix + SEGMENTS
    missing = [name for name in (*names.values(), segments) if name not in stored]
    if missing:
        raise DataError(f"{path} lacks {len(missing)} weights that its configuration asks for, the first: {missing[0]}.")
    if further := [name for name in stored if name.startswith(f"{prefix}encoder.layer.{config.layers}.")]:
        raise DataError(f"{path} has more layers than the {config.layers} that its configuration says: {further[0]}.")
    weights = {ours: stored[theirs].float() for ours, theirs in names.items()}
    if wrong := [names[ours] for ours, value in weights.items() if not value.isfinite().all()]:
        raise DataError(f"{path}: {wrong[0]} holds values that are no numbers (NaN or infinite).")
    weights["position.weight"] = weights["position.weight"] + stored[segments].float()[0]

    def head(name: str) -> Mapping[str, Any] | None:
        parts = {part: stored.get(f"{name}.{part}") for part in ("weight", "bias")}
        return None if any(each is None for each in parts.values()) else {p: each.float() for p, each in parts.items()}  # type: ignore[union-attr]

    return Pretrained(weights, head(prefix + POOLER), head(CLASSIFIER))


def _stored(path: Path) -> dict[str, Any]:
    try:
        from safetensors.torch import load_file
    except ImportError:
        raise UsageError(f"Reading a model needs torch and safetensors. {hint(extra('compress'))}") from None
    _require(path)
    try:
        return dict(load_file(path))
    except Exception as error:  # safetensors raises its own kinds
        raise DataError(f"{path} is not readable safetensors ({error}).") from None


def _require(path: Path) -> None:
    """Raises UsageError where a file of the folder is missing."""
    if path.is_file():
        return
    pickled = path.name == WEIGHTS and (path.parent / "pytorch_model.bin").exists()
    why = "; pytorch_model.bin is a pickle, which is never loaded: save the model as safetensors" if pickled else ""
    raise UsageError(f"There is no {path.name} in {path.parent}{why}.")


class FolderTokenizer:
    """The tokenizer of a folder, with padding switched off: batches pad themselves."""

    def __init__(self, folder: str | Path, positions: int, vocabulary: int) -> None:
        """Takes the folder, how many tokens the model can read at a time, and how many it knows.

        Raises:
            UsageError: there is no tokenizer, or `transformers` is not installed.
            DataError: it cannot be read, or tells tokens that the model does not know.
        """
        place = Path(folder)
        if not any((place / name).is_file() for name in TOKENIZER):
            raise UsageError(f"There is no tokenizer in {place}: it needs {' or '.join(TOKENIZER)}.")
        try:
            from transformers import AutoTokenizer
        except ImportError:
            raise UsageError(f"Reading a tokenizer needs transformers. {hint(extra('compress'))}") from None
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(str(place), local_files_only=True)
        except Exception as error:  # whatever a damaged file makes it raise
            reason = (str(error) or type(error).__name__).splitlines()[0]
            raise DataError(f"The tokenizer of {place} cannot be read: {reason}") from None
        if (last := max(self._tokenizer.get_vocab().values())) >= vocabulary:
            raise DataError(
                f"The tokenizer of {place} is another model's: it tells tokens up to {last}, the model knows {vocabulary}."
            )
        self._positions = positions

    @property
    def padding(self) -> int:
        """The id that fills up a batch."""
        return int(self._tokenizer.pad_token_id or 0)

    @property
    def encode(self) -> Encode:
        """Texts or pairs to ids, cut to what the model can read."""
        return self._encode

    def save(self, folder: Path) -> None:
        """Writes it as it was read."""
        self._tokenizer.save_pretrained(str(folder))

    def _encode(self, texts: Sequence[tuple[str, ...]]) -> list[list[int]]:
        first, *second = ([text[i] for text in texts] for i in range(len(texts[0])))
        told = self._tokenizer(first, *second, padding=False, truncation=True, max_length=self._positions)
        return [list(ids) for ids in told["input_ids"]]


def fingerprint_of(folder: str | Path) -> str:
    """Tells models apart: a hash of configuration and weights."""
    digest = hashlib.sha256()
    for name in (CONFIG, WEIGHTS):
        path = Path(folder) / name
        _require(path)
        with path.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]
