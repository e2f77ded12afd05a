"""What every op keeps: the shapes, parameters, work and parts it declares are those of its ONNX model."""

from __future__ import annotations

import io
import math
import re
import unittest
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np

from hwbench.core import registry
from hwbench.core.errors import HwbenchError, UsageError
from hwbench.network.graph import Network, Tensor
from hwbench.network.onnx_writer import random_weights, write_model
from hwbench.network.op.base import Op, Parameter, describe, network_parameters, op_of, single, tensors
from hwbench.network.spec import OpSpec, Setting
from hwbench.network.work import ITEM_BYTES, bytes_moved, features, parameter_count, primitives, work_of
from hwbench.testing.base import Contract, cases

ONE, TWO = Setting(), Setting(batch=2)
SIZE = 6
"""Of every dimension of an example nobody gave."""
TORCH_LIMIT = 1e-4
"""How far two views of one network may lie apart, as a share of the outputs' spread where that is above 1."""


def random_inputs(network: Network, batch: int) -> dict[str, np.ndarray]:
    """Seeded inputs of a network's model."""
    rng = np.random.default_rng(1)

    def draw(tensor: Tensor) -> np.ndarray:
        shape = whole(tensor, batch)
        kind = {"fp32": np.float32, "int64": np.int64, "bool": np.bool_}[tensor.dtype]
        if tensor.fill is not None:
            return np.full(shape, tensor.fill, kind)
        if tensor.dtype == "fp32":
            return rng.standard_normal(shape, np.float32)
        return rng.integers(0, tensor.high or 2, shape).astype(kind)

    return {t.name: draw(t) for t in network.inputs}


def whole(tensor: Tensor, batch: int) -> tuple[int, ...]:
    """The shape in a model: with the batch in front, unless the tensor's own shape holds it."""
    return (batch, *tensor.shape) if tensor.batched else tensor.shape


def model_of(network: Network, batch: int = 1, weights: dict[str, np.ndarray] | None = None) -> Any:
    """The ONNX model of a network."""
    import onnx

    stream = io.BytesIO()
    write_model(network, Setting(batch=batch), stream, weights)
    return onnx.load_from_string(stream.getvalue())


def session_of(model: bytes | str) -> Any:
    """A session of onnxruntime with one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def macs(model: Any) -> int:
    """Multiply-accumulates of matrix products and convolutions, read off the written model alone."""
    from onnx import shape_inference

    graph = shape_inference.infer_shapes(model, strict_mode=True).graph
    shape = {i.name: tuple(i.dims) for i in graph.initializer}
    for info in (*graph.input, *graph.output, *graph.value_info):
        shape[info.name] = tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
    total = 0
    for node in graph.node:
        if node.op_type in ("MatMul", "Gemm"):
            if "transA" in {a.name for a in node.attribute}:
                raise AssertionError(f"{node.op_type} with transA: the macs of such a product are not counted here")
            total += math.prod(shape[node.output[0]]) * shape[node.input[0]][-1]
        elif node.op_type == "Conv":
            total += math.prod(shape[node.output[0]]) * math.prod(shape[node.input[1]][1:])
    return total


def torch_difference(network: Network, batch: int) -> float:
    """How far a network's torch view lies from its ONNX model with the same weights, as a share of the outputs' spread.

    Raises:
        unittest.SkipTest: torch is not installed, or an op has no torch form.
    """
    from hwbench.network import torch_view

    feed = random_inputs(network, batch)
    weights = {name: _telling(name, parameter) for name, parameter in network_parameters(network).items()}
    try:
        torch = torch_view.imported()
        view = torch_view.module(network, weights)
        with torch.no_grad():
            made = view(*(torch.from_numpy(array) for array in feed.values()))
    except UsageError as error:
        raise unittest.SkipTest(str(error)) from None
    theirs = [each.numpy() for each in (made if isinstance(made, tuple) else (made,))]
    ours = session_of(model_of(network, batch, weights).SerializeToString()).run(None, feed)
    if [each.shape for each in ours] != [each.shape for each in theirs]:
        return math.inf
    return max(float(np.abs(a - b).max() / max(1.0, a.std())) for a, b in zip(ours, theirs, strict=True))


def _telling(name: str, parameter: Parameter) -> np.ndarray:
    """Seeded values; where a parameter starts as a constant, near it: ones and zeros would hide a scale and a shift."""
    drawn = random_weights(3)(name, replace(parameter, init="normal"))
    if parameter.init == "normal":
        return drawn
    return np.asarray(np.float32(parameter.init == "ones") + np.float32(0.2) * drawn)


class OpContract(Contract):
    """An op whose class lists `examples` (keys of its specs) is checked on them; else on small sizes and every word."""

    kind = "op"
    examples: Sequence[str] = ()
    """Keys, e.g. "gelu(dim=6,tokens=5)"."""
    batched = True
    """False for an op whose shapes hold the batch."""

    @property
    def called(self) -> str:
        """A name that can stand in keys, also of a class that was given."""
        if self.part is None:
            return self.name
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", getattr(self.part, "__name__", type(self.part).__name__)).lower()
        return registry.named(self.kind, self.part, getattr(self.part, "name", "") or words)

    def specs(self) -> Iterator[OpSpec]:
        """The examples."""
        op: Op = self.make()
        given = self.examples or getattr(op, "examples", ())
        if given:
            yield from map(OpSpec.parse, given)
            return
        words = {name: known for name, known in op.fields.items() if known}
        for chosen in zip_longest(*words.values()) if words else [()]:
            told = {name: word or words[name][0] for name, word in zip(words, chosen, strict=True)}
            yield OpSpec.of(self.called, **{name: told.get(name, SIZE) for name in op.fields})

    def each(self) -> Iterator[tuple[OpSpec, Op, Network]]:
        """Every example with its op and the network of it alone."""
        for spec in self.specs():
            try:
                found = spec, op_of(spec), single(spec)
            except HwbenchError as error:
                message = f"{error} Give the class `examples`, keys of specs that make sense"
                raise AssertionError(f"op {self.called}, fields: {spec.key} is no example: {message}") from None
            yield found

    def test_every_word_of_its_fields_has_an_example(self) -> None:
        """None is left unchecked."""
        specs = list(self.specs())
        self.expect(all(spec.op == self.called for spec in specs), "name", "expected examples of this op alone")
        for field, words in self.make().fields.items():
            left = set(words or ()) - {spec[field] for spec in specs}
            self.expect(not left, "fields", f"expected an example for {field} = {', '.join(sorted(left))}")

    @cases(batch=[1, 2])
    def test_the_model_is_valid_and_gives_the_declared_shapes(self, batch: int) -> None:
        """As onnx checks it and onnxruntime runs it."""
        import onnx

        for spec, op, network in self.each():
            inputs, outputs = op.signature(spec)
            model = model_of(network, batch)
            onnx.checker.check_model(model, full_check=True)
            session = session_of(model.SerializeToString())
            shapes = [(i.name, tuple(i.shape)) for i in session.get_inputs()]
            wanted = [(t.name, whole(t, batch)) for t in inputs]
            self.expect(shapes == wanted, "signature", f"{spec.key}: declared inputs {wanted}, the model has {shapes}")
            results = session.run(None, random_inputs(network, batch))
            found, declared = [r.shape for r in results], [whole(t, batch) for t in outputs]
            self.expect(found == declared, "signature", f"{spec.key}: declared outputs {declared}, the model gives {found}")
            self.expect(all(np.isfinite(r).all() for r in results), "emit", f"{spec.key}: expected finite results")

    def test_samples_of_a_batch_do_not_see_each_other(self) -> None:
        """Each is what it is alone."""
        if not self.batched:
            self.skip("its shapes hold the batch")
        for spec, _, network in self.each():
            feed = random_inputs(network, 2)
            both = session_of(model_of(network, 2).SerializeToString()).run(None, feed)
            alone = session_of(model_of(network, 1).SerializeToString())
            for i in range(2):
                for one, pair in zip(alone.run(None, {n: x[i : i + 1] for n, x in feed.items()}), both, strict=True):
                    close = np.allclose(one[0], pair[i], rtol=1e-7, atol=1e-5)
                    self.expect(close, "emit", f"{spec.key}: expected sample {i} of two to be what it is alone")

    def test_declared_work_is_what_the_model_computes(self) -> None:
        """Multiply-accumulates of one sample, and of two."""
        for spec, op, network in self.each():
            for batch in (1, 2) if self.batched else (1,):
                declared, found = op.work(spec).macs * batch, macs(model_of(network, batch))
                self.expect(declared == found, "work", f"{spec.key}: declared {declared} macs, the model computes {found}")

    def test_declared_parameters_are_what_the_model_stores(self) -> None:
        """By name and size."""
        for spec, op, network in self.each():
            declared = network_parameters(network)
            initializers = model_of(network).graph.initializer
            stored = {i.name: math.prod(i.dims) for i in initializers if not i.name.startswith("constant_")}
            wanted = {name: p.size for name, p in declared.items()}
            self.expect(stored == wanted, "parameters", f"{spec.key}: declared {wanted}, the model stores {stored}")
            self.expect(parameter_count(spec) == sum(stored.values()), "parameters", f"{spec.key}: expected their sum as count")
            names = [p.name for p in op.parameters(spec)], [name.removeprefix(f"{spec.op}.") for name in declared]
            self.expect(names[0] == names[1], "parameters", f"{spec.key}: expected the names {names[1]}, found {names[0]}")
            for p in declared.values():
                known = len(p.axes) == len(p.shape) and p.init in ("normal", "ones", "zeros") and p.fan_in >= 1
                self.expect(known, "parameters", f"{spec.key}: {p.name} needs an axis per side, an initialiser, a fan-in")

    def test_an_axis_of_a_primitive_has_the_size_its_dimension_says(self) -> None:
        """`Parameter.axes`."""
        for spec, op, _ in self.each():
            for node in [n for n in op.expand(spec).nodes if dict(n.spec.dims).get("groups", 1) == 1]:
                for p in op_of(node.spec).parameters(node.spec):
                    sizes = [size for axis, size in zip(p.axes, p.shape, strict=True) if axis]
                    wanted = [node.spec[axis] for axis in p.axes if axis]
                    self.expect(wanted == sizes, "parameters", f"{spec.key}: axes of {p.name} say {wanted}, it has {sizes}")

    def test_a_block_is_the_sum_of_its_primitives(self) -> None:
        """Work, parameters and shapes."""
        for spec, op, network in self.each():
            parts = primitives(network)
            plain = all(op_of(part).expand(part).specs == (part,) for part in parts)
            self.expect(plain, "expand", f"{spec.key}: expected that it ends in primitives, which expand to themselves")
            summed = sum((op_of(part).work(part) for part in parts[1:]), op_of(parts[0]).work(parts[0]))
            same = op.work(spec) == summed == work_of(network)
            self.expect(same, "work", f"{spec.key}: expected the sum of its primitives {summed}, found {op.work(spec)}")
            for tables in (True, False):
                counts = parameter_count(spec, tables=tables), sum(parameter_count(part, tables=tables) for part in parts)
                self.expect(counts[0] == counts[1], "parameters", f"{spec.key}: {counts[0]} declared, {counts[1]} in its parts")
            inner, (inputs, outputs) = op.expand(spec), op.signature(spec)
            same = [(t.shape, t.dtype) for t in inner.inputs] == [(t.shape, t.dtype) for t in inputs]
            self.expect(same, "expand", f"{spec.key}: expected the inputs of its signature")
            same = [tensors(inner)[name].shape for name in inner.outputs] == [t.shape for t in outputs]
            self.expect(same, "expand", f"{spec.key}: expected the outputs of its signature")

    def test_what_a_run_reads_is_all_that_is_learned_unless_it_is_a_table(self) -> None:
        """`parameters_read` and the bytes moved."""
        for spec, op, _ in self.each():
            read, learned, weights = op.work(spec).parameters_read, parameter_count(spec), parameter_count(spec, tables=False)
            between = weights <= read <= learned
            self.expect(between, "work", f"{spec.key}: expected parameters_read from {weights} to {learned}, found {read}")
            inputs, outputs = op.signature(spec)
            moved = sum(math.prod(t.shape) * ITEM_BYTES[t.dtype] for t in (*inputs, *outputs))
            counted = bytes_moved(spec, ONE) == moved + 4 * read > 0 and bytes_moved(spec, TWO) == 2 * moved + 4 * read
            self.expect(counted, "signature", f"{spec.key}: expected {moved + 4 * read} bytes moved, more than none")

    def test_features_are_finite_and_grow_with_the_batch(self) -> None:
        """What models of latency learn from."""
        for spec, op, _ in self.each():
            one, two = features(spec, ONE), features(spec, TWO)
            finite = all(math.isfinite(v) and v >= 0 for v in (*one.values(), *two.values()))
            self.expect(finite, "work", f"{spec.key}: expected finite features, none negative, found {one}")
            self.expect(describe(spec)[1].items() <= one.items(), "description", f"{spec.key}: expected it among the features")
            sizes = {d for d, v in spec.dims if isinstance(v, int)}
            named = sizes <= set(one) or not self.batched  # that one describes itself
            self.expect(named, "description", f"{spec.key}: expected the dimensions {sorted(sizes)} among the features")
            doubled = (two["flops"], two["macs"]) == (2 * one["flops"], 2 * one["macs"])
            self.expect(doubled, "work", f"{spec.key}: expected twice the work for two samples")
            flops = 2 * one["macs"] + op.work(spec).other_flops
            self.expect(one["flops"] == flops, "work", f"{spec.key}: expected {flops} FLOPs, found {one['flops']}")
            ratio = math.isclose(one["flops_per_byte"] * one["bytes_moved"], one["flops"], rel_tol=1e-6)
            self.expect(ratio, "work", f"{spec.key}: expected FLOPs per byte times bytes to be the FLOPs")

    def test_its_torch_form_computes_what_its_model_computes(self) -> None:
        """Where it has one; proxies and supernets need it."""
        for spec, _, network in self.each():
            for batch in (1, 3) if self.batched else ():
                found = torch_difference(network, batch)
                said = f"expected its ONNX model's outputs within {TORCH_LIMIT}, found a difference of {found:.1e}"
                self.expect(found <= TORCH_LIMIT, "compute", f"{spec.key}: {said}")

    def test_random_weights_are_the_same_every_time_and_said_to_be_random(self) -> None:
        """By name and seed alone."""
        from onnx import numpy_helper

        for spec, _, network in self.each():
            model = model_of(network)
            same = model.SerializeToString() == model_of(network).SerializeToString()
            self.expect(same, "emit", f"{spec.key}: expected the same model every time")
            said = {p.key: p.value for p in model.metadata_props}
            self.expect(said == {"weights": "random, seed 0"}, "emit", f"{spec.key}: the model says {said} of its weights")
            stored = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
            for name, p in network_parameters(network).items():
                array = random_weights(0)(name, p)
                same = sorted(array.ravel()) == sorted(stored[name].ravel())
                self.expect(same, "emit", f"{spec.key}: expected the values of {name} as drawn, found others")
                differ = np.array_equal(array, random_weights(0)(name + "x", p)) == (p.init != "normal")
                self.expect(differ, "parameters", f"{spec.key}: {name} is drawn by its name unless it is constant")
