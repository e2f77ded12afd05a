"""Models nobody here wrote: configurations of `transformers` with random weights, exported by torch.

    python -m studies.public_models FOLDER NAME        writes one as FOLDER/NAME.onnx

studies/accuracy.py measures and predicts them. LATER were chosen after the predictor was fitted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hwbench.core.errors import MeasurementError

TOKENS, IMAGE, PAST = 128, 224, 127


def _first(model: Any, *inputs: Any) -> Any:
    return model(*inputs, return_dict=False)[0]


def _vision(name: str, **options: Any) -> tuple[Any, tuple[Any, ...]]:
    import torch
    import transformers

    model = getattr(transformers, f"{name}Model")(getattr(transformers, f"{name}Config")(**options))
    return _wrapped(model, _first), (torch.randn(1, 3, IMAGE, IMAGE),)


def _text(name: str, **options: Any) -> tuple[Any, tuple[Any, ...]]:
    import torch
    import transformers

    model = getattr(transformers, f"{name}Model")(getattr(transformers, f"{name}Config")(**options))
    return _wrapped(model, _first), (torch.randint(0, 1000, (1, TOKENS)),)


def _wrapped(model: Any, call: Callable[..., Any]) -> Any:
    import torch

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            return call(self.model, *inputs)

    return Wrapped().eval()


def _gpt2_step() -> tuple[Any, tuple[Any, ...]]:
    import torch
    import transformers
    from transformers.cache_utils import DynamicCache

    config = transformers.GPT2Config()
    heads, size = config.n_head, config.n_embd // config.n_head

    def step(model: Any, token: Any, keys: Any, values: Any) -> Any:
        cache = DynamicCache()
        for layer in range(config.n_layer):
            cache.update(keys[layer], values[layer], layer)
        return model(input_ids=token, past_key_values=cache, use_cache=True).last_hidden_state

    past = torch.randn(config.n_layer, 1, heads, PAST, size)
    return _wrapped(transformers.GPT2Model(config), step), (torch.randint(0, 1000, (1, 1)), past, past.clone())


def _t5_encoder() -> tuple[Any, tuple[Any, ...]]:
    import torch
    import transformers

    return _wrapped(transformers.T5EncoderModel(transformers.T5Config()), _first), (torch.randint(0, 1000, (1, TOKENS)),)


def _swin_options() -> dict[str, Any]:
    return {"image_size": IMAGE}


def _clip_text() -> tuple[Any, tuple[Any, ...]]:
    import torch
    import transformers

    return _wrapped(transformers.CLIPTextModel(transformers.CLIPTextConfig()), _first), (torch.randint(0, 1000, (1, 77)),)


def _whisper_encoder() -> tuple[Any, tuple[Any, ...]]:
    import torch
    import transformers

    return _wrapped(transformers.WhisperModel(transformers.WhisperConfig()).encoder, _first), (torch.randn(1, 80, 3000),)


MODELS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "bert-base": lambda: _text("Bert"),
    "distilbert": lambda: _text("DistilBert"),
    "vit-base": lambda: _vision("ViT"),
    "deit-small": lambda: _vision("DeiT", hidden_size=384, num_attention_heads=6, intermediate_size=1536),
    "swin-tiny": lambda: _vision("Swin", **_swin_options()),
    "mobilevit-small": lambda: _vision("MobileViT"),
    "mobilenet-v2": lambda: _vision("MobileNetV2"),
    "resnet-50": lambda: _vision("ResNet"),
    "convnext-tiny": lambda: _vision("ConvNext"),
    "gpt2-prefill": lambda: _text("GPT2", use_cache=False),
    "gpt2-step": _gpt2_step,
    "t5-small-encoder": _t5_encoder,
    "segformer-b0": lambda: _vision("Segformer"),
    "electra-small": lambda: _text("Electra"),
    "clip-text": _clip_text,
    "regnet-y-40": lambda: _vision("RegNet"),
    "cvt-13": lambda: _vision("Cvt"),
    "mobilevit-v2": lambda: _vision("MobileViTV2"),
    "efficientnet-b0": lambda: _vision(
        "EfficientNet", width_coefficient=1.0, depth_coefficient=1.0, image_size=IMAGE, hidden_dim=1280
    ),
    "dinov2-small": lambda: _vision("Dinov2", hidden_size=384, num_attention_heads=6),
    "pvt-tiny": lambda: _vision("Pvt"),
    "whisper-tiny-encoder": _whisper_encoder,
    "llama-160m-prefill": lambda: _text(
        "Llama", hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, use_cache=False
    ),
}
"""Twelve to begin with, and others that earlier predictors were tried on or refused: all seen while it was made."""
LATER: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "levit-128s": lambda: _vision("Levit"),
    "swinv2-tiny": lambda: _vision("Swinv2", image_size=IMAGE),
    "poolformer-s12": lambda: _vision("PoolFormer"),
    "mpnet-base": lambda: _text("MPNet"),
    "opt-125m-prefill": lambda: _text("OPT", use_cache=False),
}
"""Chosen after the predictor was frozen; no error on them was looked at before (that their kernels are covered, was)."""


def _bert_mini_open() -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Four layers of 256, with batch and sequence left open."""
    import torch
    import transformers

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            config = transformers.BertConfig(
                hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
            )
            self.model = transformers.BertModel(config)

        def forward(self, input_ids: Any) -> Any:
            return _first(self.model, input_ids)

    sides = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("sequence", min=2, max=512)}
    return Encoder().eval(), (torch.randint(0, 1000, (2, TOKENS)),), {"input_ids": sides}


OPEN: dict[str, Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]] = {"bert-mini-open": _bert_mini_open}
"""Models that leave sides open, with what torch is told of them: for sweeps, and for sessions whose shapes change."""


def export(folder: Path, names: Sequence[str]) -> None:
    """Writes the models that the folder lacks, each in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        if not (folder / f"{name}.onnx").exists():
            done = subprocess.run([sys.executable, "-m", "studies.public_models", str(folder), name], check=False)
            if done.returncode:
                raise MeasurementError(f"{name} was not exported (see above); it needs torch and transformers.")


def _export_one(folder: Path, name: str) -> None:
    warnings.filterwarnings("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch

    torch.manual_seed(0)
    module, inputs, *sides = {**MODELS, **LATER, **OPEN}[name]()
    target = folder / f"{name}.onnx"
    with torch.no_grad():
        torch.onnx.export(
            module, inputs, str(target.with_suffix(".part")), dynamo=True, external_data=False, verbose=False,
            dynamic_shapes=sides[0] if sides else None,
        )  # fmt: skip
    target.with_suffix(".part").replace(target)


if __name__ == "__main__":
    _export_one(Path(sys.argv[1]), sys.argv[2])
