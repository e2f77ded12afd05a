"""What a runtime makes of an ONNX model: the kernels it executes after its own fusions, with all their shapes.

The runtime optimises the model itself, writes down what it will run and infers every shape. None of that needs the
weights (light_model.py), so that even a model of half a gigabyte takes a fraction of a second. Where data decide a shape,
which branch is taken or how often a loop runs, nothing can be inferred: then the model itself is run once, on the inputs that
`hwbench measure` would give it, and the runtime tells every node it executed.

    hwbench predict MODEL.onnx       prices these kernels
    hwbench profile --model MODEL.onnx   measures those that no table has
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwbench.core import registry
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import scratch_folder
from hwbench.core.progress import step
from hwbench.network.kernel_canonical import canonical
from hwbench.network.spec import OpSpec, Setting
from hwbench.profiler import memory_plan
from hwbench.profiler.executed_nodes import Event, Execution, executions, name_nodes
from hwbench.profiler.kernel_statement import CONTROL, VIEW, Facts, state, type_of
from hwbench.profiler.light_model import MODEL, lighten, take_in, undeclare
from hwbench.profiler.memory_plan import MemoryPlan
from hwbench.profiler.onnx_inputs import OpenInputs, filled
from hwbench.runtime.base import FreeSides

OPTIMISED, EXPOSED, NAMED, WEIGHTS = "optimised.onnx", "exposed.onnx", "named.onnx", "weights.bin"
MOST_ELEMENTS = 2**40
"""Of one tensor; more is a damaged size."""


@dataclass(frozen=True)
class DetectedKernel:
    """One node as the runtime runs it."""

    name: str
    """Of the node in the optimised model; inside a loop or branch `node/inner`."""
    type: str
    spec: OpSpec | None
    """None where it cannot be stated as a kernel."""
    times: int = 1
    """How often one run of the model executes it."""
    why: str = ""
    """Why it cannot be stated."""


@dataclass(frozen=True)
class DetectedKernels:
    """A model as the runtime runs it."""

    path: Path
    kernels: tuple[DetectedKernel, ...]
    """In running order."""
    fused: Mapping[str, int]
    """Kernel types that the model itself does not hold: the runtime's fusions, with their number."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of the model's inputs."""
    memory: MemoryPlan
    """What running it asks of memory."""
    notes: tuple[str, ...] = ()
    """What data decided."""

    @property
    def specs(self) -> list[OpSpec]:
        """Kernels that can be stated, each once."""
        return list(dict.fromkeys(kernel.spec for kernel in self.kernels if kernel.spec is not None))

    @property
    def unknown(self) -> tuple[DetectedKernel, ...]:
        """Nodes that cannot be stated as a kernel."""
        return tuple(kernel for kernel in self.kernels if kernel.spec is None)


@step("detecting kernels")
def detect(
    path: str | Path,
    runtime: str = "onnxruntime",
    setting: Setting = Setting(),
    shapes: Mapping[str, Sequence[int]] | None = None,
    fills: Mapping[str, float] | None = None,
    own_layout: bool = True,
    whole: bool = True,
) -> DetectedKernels:
    """Lists the kernels that a runtime makes of a model.

    Args:
        path: ONNX file.
        runtime: Whose fusions count.
        setting: Threads; the batch is the model's own.
        shapes: Full shapes of inputs that have free sides.
        fills: Numbers that inputs are filled with where data decide what is run.
        own_layout: With the layouts of this machine's processor; without, what devices of the runtime have in common.
        whole: Refuse a model that lacks its large weights, as `onnx_writer` leaves them out of a light one.

    Raises:
        UsageError: there is no such file.
        DataError: it is not an ONNX model that the runtime can load, or a free side has no size.
    """
    model = Path(path)
    if model.is_dir():
        raise UsageError(f"{model} is a folder; give the ONNX file itself.")
    if not model.is_file():
        raise UsageError(f"There is no ONNX model at {model}.")
    engine = registry.get("runtime", runtime)
    if not hasattr(engine, "optimise"):
        raise UsageError(f"Runtime {runtime} does not tell what it makes of a model; use onnxruntime.")
    with scratch_folder() as scratch:
        source = _Source(model, scratch, engine, _setting(setting, own_layout), dict(shapes or {}), dict(fills or {}))
        try:
            lighten(model, source.folder, whole)
            taken = _inferred(source) or _run_once(source)
            original = _read(source.folder / MODEL)
            memory = _memory(source, *taken[:2], frozenset(tensor.name for tensor in original.graph.initializer))
        except FreeSides as free:
            raise OpenInputs.of(model, free) from None
        except MemoryError as error:
            raise DataError(f"{model} needs more memory than there is; export it with smaller sides.") from error
        except (ValueError, OSError, OverflowError) as error:
            raise DataError(f"{model}: {str(error).replace(f'{source.folder}/', '')}") from error
    filled(model, list(taken[1]), source.fills)  # refuses names that no input has
    return _detected(model, *taken, _types(original), memory)


def _setting(setting: Setting, own_layout: bool) -> dict[str, Any]:
    return {"threads": setting.threads, **({} if own_layout else {"common_layout": True})}


@dataclass(frozen=True)
class _Source:
    """A model and how it is to be opened."""

    model: Path
    folder: Path
    engine: Any
    setting: Mapping[str, Any]
    shapes: Mapping[str, Sequence[int]]
    fills: Mapping[str, float]


Values = Mapping[str, tuple[tuple[int, ...], Any]]
"""Tensor -> (shape, numpy type)."""
Taken = tuple[list[Execution], Values, tuple[str, ...]]
"""What is executed, the inputs it is executed on, and what data decided."""


def _inferred(source: _Source) -> Taken | None:
    """All nodes with the shapes the runtime infers; None where only a run can tell them."""
    folder, engine = source.folder, source.engine
    try:
        inputs = engine.optimise(str(folder / MODEL), str(folder / OPTIMISED), source.setting, source.shapes)
    except FreeSides:
        raise
    except ValueError as first:  # exporters write down sizes of the sample they traced, which others contradict
        if not undeclare(folder / MODEL):
            raise
        try:
            inputs = engine.optimise(str(folder / MODEL), str(folder / OPTIMISED), source.setting, source.shapes)
        except ValueError:
            raise first from None
    optimised = _read(folder / OPTIMISED)
    if any(node.op_type in CONTROL for node in optimised.graph.node):
        return None
    (folder / EXPOSED).write_bytes(_exposed(optimised))
    tensors = engine.tensors(str(folder / EXPOSED), source.setting)
    if tensors is None:
        return None
    for name, (shape, _) in tensors.items():
        if math.prod(shape) > MOST_ELEMENTS or min(shape, default=0) < 0:
            raise ValueError(f"tensor '{name}' has the sides {list(shape)}, which no memory holds; export it again")
    return executions(optimised, {**inputs, **tensors}), inputs, ()


def _run_once(source: _Source) -> Taken:
    """All nodes that one run of the model executes, with the shapes they met."""
    engine, target = source.engine, source.folder / OPTIMISED
    target.unlink(missing_ok=True)
    inputs, told = engine.executed(str(_named(source)), str(target), source.setting, source.shapes, source.fills)
    found = executions(_read(target), inputs, [Event(*each) for each in told])
    loops = [each for each in found if each.node.op_type in CONTROL and each.iterations > 1]
    note = "data decide shapes or what is executed: this is one run on the inputs that `hwbench measure` gives"
    return found, inputs, (note, *(f"loop {each.name} ran {each.iterations} times" for each in loops))


def _named(source: _Source) -> Path:
    """The model, or where it has nodes without a name a copy in which all have one: by its name an event finds its node."""
    import onnx

    model = _read(source.model)
    if not name_nodes(model):
        return source.model
    outside = [each for each in model.graph.initializer if each.data_location == onnx.TensorProto.EXTERNAL]
    for tensor in outside:
        take_in(tensor, source.model)
    onnx.save(model, str(source.folder / NAMED), save_as_external_data=bool(outside), location=WEIGHTS)
    return source.folder / NAMED


def _read(path: Path) -> Any:
    import onnx

    return onnx.load(str(path), "protobuf", load_external_data=False)


def _exposed(model: Any) -> bytes:
    """The model with every tensor as an output, so that a session tells its shape."""
    known = {output.name for output in model.graph.output}
    added = [name for node in model.graph.node for name in node.output if name and name not in known]
    for name in added:
        model.graph.output.add().name = name
    raw = model.SerializeToString()
    del model.graph.output[len(known) :]
    return bytes(raw)


def _memory(source: _Source, executed: Sequence[Execution], inputs: Values, originals: frozenset[str]) -> MemoryPlan:
    return memory_plan.plan(source.model.stat().st_size, _read(source.folder / OPTIMISED), originals, executed, inputs)


def _types(model: Any) -> set[str]:
    """Node types that the model itself holds."""
    return {type_of(node) for part in (model.graph, *model.functions) for node in part.node}


def _detected(
    path: Path, executed: Sequence[Execution], inputs: Values, notes: tuple[str, ...], original: set[str], memory: MemoryPlan
) -> DetectedKernels:
    kernels = tuple(_kernel(each) for each in executed)
    if not kernels:
        raise DataError(f"{path} has nothing left to compute once constants are folded.")
    fused: dict[str, int] = {}
    for kernel in kernels:
        if kernel.type not in original and kernel.spec is not None and kernel.spec["type"] != VIEW:
            fused[kernel.type] = fused.get(kernel.type, 0) + 1
    shapes = {name: tuple(shape) for name, (shape, _) in inputs.items()}
    return DetectedKernels(path, kernels, fused, shapes, memory, notes)


def _kernel(each: Execution) -> DetectedKernel:
    kind = type_of(each.node)
    try:
        facts = Facts(each.node, each.inputs, each.outputs, each.constants, each.versions, each.used, each.iterations)
        return DetectedKernel(each.name, kind, canonical(state(facts)), each.times)
    except UsageError as error:
        return DetectedKernel(each.name, kind, None, each.times, str(error))
