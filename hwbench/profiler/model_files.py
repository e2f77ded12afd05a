"""The files a measurement needs, in a scratch folder: written when the engine asks for them, removed when it has them.

A network becomes an ONNX model, in the number format asked for and the file format the runtime loads, with the outputs of
onnxruntime beside it where a runtime's first result is held against them.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.core.files import scratch_folder, writing
from hwbench.device.agent.message import CANARY, EMPTY
from hwbench.network import onnx_writer, work
from hwbench.network.graph import Network
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec, Setting
from hwbench.profiler.live_target import REFERENCE, LiveTarget
from hwbench.profiler.plan import Item
from hwbench.runtime.base import STRICT, High
from hwbench.runtime.convert import quantize

FULL = ".fp32.onnx"
"""Ending of the fp32 form of a model in another format."""
WHOLE_BYTES = 150 << 20
"""What a session of a whole model takes at most that is made here: its weights twice, and its activations."""
CANARY_OP = OpSpec.of("linear", tokens=64, **{"in": 64}, out=64)
EMPTY_OP = OpSpec.of("relu", tokens=1, dim=1)


class _HashingStream:
    """Passes bytes on and hashes them, so that a model is written and hashed in one go."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.digest = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._stream.write(data)


class ModelFiles:
    """Writes models to a scratch folder when the engine asks for them and removes them when it has them."""

    def __init__(self, folder: Path, live: LiveTarget | None = None, strict: bool = True) -> None:
        self._folder, self._live, self._strict = folder, live, strict

    def load_setting(self, setting: Setting) -> dict[str, Any]:
        """What `load` of a runtime is told: the setting, and whether all of a model must be in its number format."""
        return {**asdict(setting), STRICT: self._strict}

    def item(self, key: str, network: Network, setting: Setting) -> Item:
        """The engine's item for a network."""
        path, formats = self.path(key), _formats(network, setting)
        high: dict[str, int | Sequence[float]] = {t.name: t.high for t in network.inputs if t.high is not None}
        high |= {t.name: [t.fill] for t in network.inputs if t.fill is not None}

        def model() -> tuple[str, str]:
            return self.converted(*written(), setting, {})

        def written() -> tuple[str, str]:
            with writing(path), path.open("wb") as stream:
                hashing = _HashingStream(stream)
                onnx_writer.write_model(network, setting, hashing)  # type: ignore[arg-type]
            if formats == {"fp32"}:
                return str(path), hashing.digest.hexdigest()
            if len(formats) > 1:
                return precise(path, "int8", high, {}, _kept(network, setting))
            if setting.dtype == "fp16":  # which onnxruntime computes in fp32 here, if at all: what is expected is that
                shutil.copyfile(path, path.with_suffix(FULL))
            return precise(path, setting.dtype, high, {})

        values = max(int(np.prod(t.shape)) for t in ops.tensors(network).values()) * setting.batch
        parameters = sum(work.parameter_count(spec) for spec in network.specs)
        return Item(
            key,
            asdict(setting),
            model,
            high,
            # Seen: weights are held up to 1.9 times (packed for the matrix kernels), a session takes 1.5 MB.
            memory_bytes=int(7.6 * parameters) + 12 * values + (2 << 20),
            expected=self.expected(path, setting, high, {}),
            release=lambda: _remove(path),
        )

    def whole(self, key: str, model: Callable[[], Any], setting: Setting, high: High) -> Item:
        """The engine's item for an ONNX model that is made when it is needed, as it is: its own batch and number format."""
        path = self.path(key)

        def written() -> tuple[str, str]:
            with writing(path):
                path.write_bytes(model().SerializeToString())
            return self.converted(str(path), file_sha256(path), setting, {})

        memory = WHOLE_BYTES  # not known before it is made
        expected = self.expected(path, setting, high, {})
        return Item(key, asdict(setting), written, high, memory_bytes=memory, expected=expected, release=lambda: _remove(path))

    def converted(self, path: str, sha256: str, setting: Setting, shapes: Mapping[str, Sequence[int]]) -> tuple[str, str]:
        """(path, sha256) of what the runtime loads in place of an ONNX file.

        Raises:
            ValueError: it cannot be converted.
        """
        if self._live is None or self._live.target.engine == REFERENCE:
            return path, sha256
        made = registry.get("runtime", self._live.target.engine).convert(path, asdict(setting), shapes)
        return (path, sha256) if made == path else (made, file_sha256(Path(made)))

    def expected(
        self, path: Path, setting: Setting, high: High, shapes: Mapping[str, Sequence[int]], beside: Path | None = None
    ) -> Callable[[], tuple[str, str]] | None:
        """Writes what onnxruntime makes of an ONNX file here, beside it or `beside`; None where just that is measured."""
        if self._live is None or not self._live.checked:
            return None
        return lambda: expected_outputs(path, self.load_setting(setting), high, shapes, beside or path)

    def under(self, live: LiveTarget) -> ModelFiles:
        """The same folder, for another runtime."""
        return ModelFiles(self._folder, live, self._strict)

    def path(self, key: str) -> Path:
        """Where the model of a key goes."""
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.onnx"

    def references(self) -> list[Item]:
        """The canary and the empty call, run around every burst; on one thread, as more would spin into the burst."""
        return [self.item(key, ops.single(spec), Setting()) for key, spec in ((CANARY, CANARY_OP), (EMPTY, EMPTY_OP))]


def _formats(network: Network, setting: Setting) -> set[str]:
    """The number formats of a network's nodes.

    Raises:
        UsageError: others than fp32 and int8 are mixed.
    """
    found = {setting.of_node(spec).dtype for spec in network.specs}
    if len(found) > 1 and found != {"fp32", "int8"}:
        raise UsageError(f"A network of {' and '.join(sorted(found))} cannot be made; fp32 and int8 can be mixed.")
    return found


def _kept(network: Network, setting: Setting) -> list[str]:
    """ONNX nodes that stay in fp32 in a network of both."""
    names = onnx_writer.names_by_node(network)
    return [name for node in network.nodes if setting.of_node(node.spec).dtype == "fp32" for name in names[node.name]]


def _remove(model: Path) -> None:
    """A model with all that was made of it."""
    for file in model.parent.glob(f"{model.stem}.*"):
        file.unlink(missing_ok=True)


def expected_outputs(
    model: Path, setting: Mapping[str, Any], high: High, shapes: Mapping[str, Sequence[int]], beside: Path
) -> tuple[str, str]:
    """Writes what onnxruntime makes of a model here, beside a file; returns (path, sha256)."""
    full = beside.with_suffix(FULL)
    source, at = (full, {**setting, "dtype": "fp32"}) if full.exists() else (model, setting)
    session = registry.get("runtime", REFERENCE).load(str(source), at, high, shapes)
    session.run()
    path = beside.with_suffix(".expected.npz")
    with writing(path):
        np.savez(path, **{f"{i:03d}": array for i, array in enumerate(session.outputs())})
    return str(path), file_sha256(path)


def precise(
    path: Path, dtype: str, high: High, shapes: Mapping[str, Sequence[int]], keep: Sequence[str] = ()
) -> tuple[str, str]:
    """Rewrites a scratch model in another number format, but for the nodes to keep; returns (path, sha256)."""
    converted = path.with_suffix(f".{dtype}.onnx")
    try:
        quantize.convert(path, dtype, converted, quantize.calibration_inputs(path, high, shapes), keep)
        with writing(path):
            converted.replace(path)
    finally:
        converted.unlink(missing_ok=True)
    return str(path), file_sha256(path)


def file_sha256(path: Path) -> str:
    """A file's identity."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def model_files(live: LiveTarget | None = None, strict: bool = True) -> Iterator[ModelFiles]:
    """A scratch folder for models of that target, gone afterwards."""
    with scratch_folder() as folder:
        yield ModelFiles(folder, live, strict)
