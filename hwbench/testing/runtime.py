"""What every runtime keeps: it computes what onnxruntime computes, run after run, and says why where it cannot."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from hwbench.core import registry
from hwbench.device.agent import bundle
from hwbench.device.agent.worker import TOLERANCES
from hwbench.network.onnx_writer import write_model
from hwbench.network.op.base import single
from hwbench.network.spec import OpSpec, Setting
from hwbench.runtime.base import NO_CUDA, Session, difference
from hwbench.testing.base import Contract, cases

SETTING = {"dtype": "fp32", "batch": 1, "threads": 1, "scenario": "back-to-back"}
OPS = ("linear(in=6,out=4,tokens=5)", "ffn_block(activation=relu,dim=6,hidden=20,norm=pre,tokens=5)", "dense(in=6,out=4)")
REFERENCE = "onnxruntime"


@contextmanager
def model(key: str = OPS[0], batch: int = 1) -> Iterator[str]:
    """The ONNX file of one op."""
    with tempfile.TemporaryDirectory(prefix="hwbench-") as folder:
        path = Path(folder) / "model.onnx"
        with path.open("wb") as stream:
            write_model(single(OpSpec.parse(key)), Setting(batch=batch), stream)
        yield str(path)


class RuntimeContract(Contract):
    """On this machine; where it cannot run here, most checks are left out with its own reason."""

    kind = "runtime"

    def here(self) -> Any:
        """The runtime, if it runs on this machine."""
        runtime = self.make()
        try:
            runtime.version()
            where = runtime.executes_on()
        except ValueError as reason:
            self.skip(f"{self.called} does not run here: {reason}")
        if where == NO_CUDA:
            self.skip(f"{self.called} does not run here: {where}")
        return runtime

    def loaded(self, runtime: Any, path: str, setting: dict[str, Any] | None = None) -> Session:
        """A session of a converted model."""
        setting = setting or SETTING
        session: Session = runtime.load(runtime.convert(path, setting, {}), setting, {}, {})
        return session

    def test_it_says_its_version_and_what_computes(self) -> None:
        """Or refuses with a ValueError that says what to install."""
        runtime = self.make()
        for member in ("version", "executes_on"):
            try:
                said = getattr(runtime, member)()
            except ValueError as reason:
                self.expect(str(reason) and "\n" not in str(reason), member, f"expected a reason in one line, found '{reason}'")
            else:
                self.expect(isinstance(said, str) and said, member, f"expected words, found {said!r}")

    @cases(op=OPS, batch=[1, 3])
    def test_it_computes_what_onnxruntime_computes(self, op: str, batch: int) -> None:
        """On the same seeded inputs (`random_inputs`)."""
        runtime, setting = self.here(), {**SETTING, "batch": batch}
        with model(op, batch) as path:
            reference = registry.get("runtime", REFERENCE).load(path, setting, {}, {})
            reference.run()
            try:
                session = self.loaded(runtime, path, setting)
            except ValueError as reason:
                if batch == 1:
                    raise
                self.skip(f"{self.called} takes one sample at a time: {reason}")
            session.run()
            found, wanted = session.outputs(), reference.outputs()
        self.expect(
            isinstance(found, list), "load", f"expected outputs() to give a list of arrays, found {type(found).__name__}"
        )
        off = difference(found, wanted)
        allowed = TOLERANCES["fp32"]
        self.expect(off <= allowed, "load", f"{op}: outputs differ from onnxruntime's by {off:.2g}, allowed are {allowed:g}")

    def test_runs_repeat_themselves_after_outputs_are_kept(self) -> None:
        """`keep_outputs`, as every measurement calls it."""
        runtime = self.here()
        with model() as path:
            session = self.loaded(runtime, path)
            session.run()
            first = [array.copy() for array in session.outputs()]
            session.keep_outputs()
            for _ in range(3):
                session.run()
            same = all(np.array_equal(a, b) for a, b in zip(first, session.outputs(), strict=True))
        self.expect(same, "load", "expected the same outputs from every run")

    def test_converting_gives_one_file(self) -> None:
        """The model itself, where the runtime reads ONNX."""
        runtime = self.here()
        with model() as path:
            made = runtime.convert(path, SETTING, {})
            self.expect(
                isinstance(made, str) and Path(made).is_file(), "convert", f"expected the path of a file, found {made!r}"
            )

    def test_what_it_cannot_load_is_refused_with_a_reason(self) -> None:
        """A ValueError: it becomes the row's reason."""
        runtime = self.here()
        with tempfile.TemporaryDirectory(prefix="hwbench-") as folder:
            path = Path(folder) / "garbage.onnx"
            path.write_bytes(b"not a model")
            try:
                self.loaded(runtime, str(path)).run()
            except ValueError as reason:
                self.expect(str(reason), "load", "expected a reason, found an empty message")
            except Exception as error:
                name = type(error).__name__
                raise AssertionError(f"runtime {self.called}, load: expected ValueError for no model, found {name}") from None
            else:
                raise AssertionError(
                    f"runtime {self.called}, load: expected ValueError for a file that is no model, it was loaded"
                )

    def test_its_file_can_be_sent_to_a_device(self) -> None:
        """Python 3.9 and numpy; where it cannot, it is of use on this machine alone."""
        module = registry.recipe(self.kind, self.called)["class"].partition(":")[0]
        if not module.startswith("hwbench."):
            try:
                bundle.portable(module)
            except ValueError as reason:
                self.skip(f"on this machine only: {reason}")
