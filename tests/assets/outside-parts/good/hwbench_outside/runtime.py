"""onnxruntime without its optimisations; one portable file, so that it can be sent to devices."""

from __future__ import annotations

from hwbench.runtime.base import fixed_shapes, random_inputs

TYPES = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(bool)": "bool"}


class TheirSession:
    """Inputs stay where they are."""

    def __init__(self, session, inputs):
        self._session, self._inputs, self._outputs = session, inputs, []

    def run(self):
        self._outputs = self._session.run(None, self._inputs)

    def keep_outputs(self):
        """onnxruntime's own buffers are used again."""

    def outputs(self):
        return list(self._outputs)


class TheirOnnx:
    """Whatever onnxruntime is installed."""

    def version(self):
        from importlib import metadata

        try:
            return metadata.version("onnxruntime") + " plain"
        except metadata.PackageNotFoundError:
            raise ValueError("onnxruntime is not installed; pip install onnxruntime") from None

    def executes_on(self):
        return "cpu"

    def convert(self, path, setting, shapes):
        return path

    def load(self, path, setting, high, shapes):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = int(setting["threads"])
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise ValueError(f"cannot load it: {str(error).splitlines()[0]}") from None
        sides, _ = fixed_shapes({i.name: i.shape for i in session.get_inputs()}, shapes)
        types = {i.name: TYPES[i.type] for i in session.get_inputs()}
        return TheirSession(session, random_inputs({n: (side, types[n]) for n, side in sides.items()}, high))
