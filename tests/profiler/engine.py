"""What tests of the engine share: models that are written and loaded, and a worker that answers from a script."""

from __future__ import annotations

import hashlib
from pathlib import Path

import onnx

from hwbench.device.agent.message import CANARY, EMPTY
from hwbench.lut.sample import Sample
from hwbench.network.onnx_writer import write_model
from hwbench.network.op.base import single
from hwbench.network.spec import OpSpec, Setting
from hwbench.profiler.host import measure
from hwbench.profiler.plan import Item, Plan, Progress
from hwbench.profiler.policy import Policy

SETTING = {"dtype": "fp32", "batch": 1, "threads": 1, "scenario": "back-to-back"}


def load(path: Path, fast: Policy, sha256: str | None = None, **high: int) -> dict:
    digest = sha256 or hashlib.sha256(path.read_bytes()).hexdigest()
    message = {"ask": "load", "item": path.name, "path": str(path), "sha256": digest, "setting": SETTING}
    return {**message, "high": high, "shapes": {}, "policy": fast.message()}


def relu(path: Path) -> Path:
    with (path / "relu.onnx").open("wb") as stream:
        write_model(single(OpSpec.of("relu", tokens=3, dim=4)), Setting(), stream)
    return path / "relu.onnx"


def save(path: Path, node: onnx.NodeProto, inputs: list, initializers: tuple = ()) -> Path:
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([node], "g", inputs, [output], list(initializers))
    onnx.save(onnx.helper.make_model(graph, ir_version=9, opset_imports=[onnx.helper.make_opsetid("", 18)]), path)
    return path


class Scripted:
    """Stands for WorkerProcess: answers from a table instead of measuring."""

    environment = {"runtime": "scripted"}
    log: list[tuple[str, str]]
    values_ns: dict[str, list[float]]
    """item -> the level of worker 0, 1, ..."""
    canaries_ns: dict[str, list[float]]
    """item -> the canary of worker 0, 1, ..., 50 where nothing is said."""
    faults: dict[tuple[str, str], Exception | str]
    """(request, item) -> what happens instead of an answer."""
    started = -1

    def __init__(self, runtime: str, timeout_s: float, transport: object) -> None:
        Scripted.started += 1
        self.token = f"w{Scripted.started}"

    def deliver(self, path: str, sha256: str) -> str:
        return path

    def ask(self, message: dict) -> dict:
        what = (message["ask"], message["item"])
        self.log.append(what)
        fault = self.faults.get(what)
        if isinstance(fault, Exception):
            raise fault
        if fault is not None:
            return {"status": "refused", "reason": fault}
        if message["ask"] == "load":
            return {"status": "ok", "load_ms": 1.0, "first_ms": 2.0, "inner": 1}
        value = self.values_ns[message["item"]][Scripted.started]
        canary = self.canaries_ns.get(message["item"], [50.0] * 99)[Scripted.started]
        known = {"canary_ns": canary, "empty_ns": 5.0, "other_cores": 0.0, "throttled": 0, "extra_ns": [2e9]}
        return {"status": "ok", "inner": 1, "readings_ns": [1.0, value, value, 1e9], **known}

    def close(self, kill: bool = False) -> None:
        self.log.append(("close", self.token))


def items(names: str, memory_bytes: int = 0, log: list | None = None) -> list[Item]:
    def item(name: str) -> Item:
        def release() -> None:
            if log is not None:
                log.append(("release", name))

        return Item(name, {}, lambda: ("path", "hash"), memory_bytes=memory_bytes, release=release)

    return [item(name) for name in names]


def collect(wanted: list[Item], plan: Plan, progress: Progress | None = None) -> list[Sample]:
    taken: list[Sample] = []
    measure(wanted, plan, progress or Progress(), lambda sample, _: taken.append(sample))
    return taken


def run(names: str, policy: Policy, progress: Progress | None = None) -> list[tuple[str, int, int]]:
    return [(s.key, s.process, s.round) for s in collect(items(names), Plan(policy, "scripted"), progress)]


def loads(scripted) -> list[str]:
    """What each worker loaded, in order."""
    workers = [[]]
    for what, item in scripted.log:
        if what == "load":
            workers[-1].append(item)
        elif what == "close":
            workers.append([])
    return ["".join(w) for w in workers if w]


REFERENCES = [Item(name, {}, lambda: ("path", "hash")) for name in (CANARY, EMPTY)]
FIXED = Policy(precision=0.5, min_processes=3, max_processes=3, rounds=4)
ONCE = Policy(precision=0.5, min_processes=1, max_processes=1, rounds=2)
