"""ONNX Runtime on the CPU: all graph optimisations, prebound inputs and outputs, no idle spinning.

`session.force_spinning_stop` ends a session's spinning when its run ends: idle sessions of a profile would
otherwise steal the other core from the one being measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any

import numpy as np

from hwbench.runtime.base import random_inputs

PROVIDER = "CPUExecutionProvider"
NUMPY_TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(bool)": np.bool_,
}


class OnnxruntimeSession:
    """A session whose inputs and outputs are bound once."""

    def __init__(self, session: Any, inputs: Mapping[str, np.ndarray]) -> None:
        import onnxruntime as ort

        self._session = session
        self._binding = session.io_binding()
        for name, array in inputs.items():
            self._binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
        for output in session.get_outputs():
            self._binding.bind_output(output.name, "cpu")
        session.run_with_iobinding(self._binding)
        # Bind the buffers of the first run, so that later runs allocate nothing.
        values = self._binding.get_outputs()
        self._binding.clear_binding_outputs()
        for output, value in zip(session.get_outputs(), values):  # noqa: B905 - Python 3.9 has no strict
            self._binding.bind_ortvalue_output(output.name, value)

    def run(self) -> None:
        """One inference."""
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> list[np.ndarray]:
        """The results of the last run."""
        return [value.numpy() for value in self._binding.get_outputs()]


class Onnxruntime:
    """The CPU execution provider."""

    name: str

    def version(self) -> str:
        """The installed wheel's version."""
        return metadata.version("onnxruntime")

    def load(self, path: str, setting: Mapping[str, Any], high: Mapping[str, int]) -> OnnxruntimeSession:
        """A session on the CPU provider, which is asserted rather than assumed."""
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = setting["threads"]
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.add_session_config_entry("session.force_spinning_stop", "1")
        try:
            session = ort.InferenceSession(path, options, providers=[PROVIDER])
        except Exception as error:
            raise ValueError(f"onnxruntime cannot load it: {str(error).splitlines()[0]}") from error
        if session.get_providers()[0] != PROVIDER:
            raise ValueError(f"onnxruntime chose {session.get_providers()[0]} instead of {PROVIDER}")
        shapes = {}
        for value in session.get_inputs():
            if not all(isinstance(side, int) for side in value.shape):
                raise ValueError(f"input '{value.name}' has no fixed shape: {value.shape}")
            if value.type not in NUMPY_TYPES:
                raise ValueError(f"input '{value.name}' has the type {value.type}, which cannot be filled")
            shapes[value.name] = (value.shape, NUMPY_TYPES[value.type])
        return OnnxruntimeSession(session, random_inputs(shapes, high))
