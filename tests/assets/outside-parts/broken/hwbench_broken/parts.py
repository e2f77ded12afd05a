"""The parts of hwbench_outside, each with one deliberate mistake, which its comment names."""

from __future__ import annotations

import numpy as np
from hwbench_outside.aggregator import TheirScale
from hwbench_outside.benchmark import TheirTable
from hwbench_outside.objective import TheirThrift
from hwbench_outside.op import TheirClip
from hwbench_outside.proxy import TheirMacs
from hwbench_outside.runtime import TheirOnnx, TheirSession
from hwbench_outside.space import TheirMlp
from hwbench_outside.strategy import TheirWalk
from hwbench_outside.transport import TheirPipe

from hwbench.network.op.base import Work
from hwbench.space.base import Gene, per_layer


class BrokenClip(TheirClip):
    def work(self, spec):
        return Work(macs=spec["tokens"] * spec["dim"])  # the model has no products


class BrokenMlp(TheirMlp):
    genes = (Gene("depth", (1, 2, 3)), *per_layer("hidden", (32, 32, 96), 3))  # the same choice twice


class WrongSession(TheirSession):
    def outputs(self):
        return [1.01 * array for array in super().outputs()]  # one per cent too much


class BrokenOnnx(TheirOnnx):
    def load(self, path, setting, high, shapes):
        made = super().load(path, setting, high, shapes)
        return WrongSession(made._session, made._inputs)


class BrokenPipe(TheirPipe):
    def ending(self, code):
        return f"ended with {code}"  # no status beside the reason


class BrokenScale(TheirScale):
    def op_ms(self, specs):
        return np.nan_to_num(super().op_ms(specs))  # what is unknown costs nothing


class BrokenWalk(TheirWalk):
    def ask(self, n):
        asked = super().ask(n)
        return np.concatenate([asked[:1], asked[: n - 1]])  # one of them twice


class BrokenThrift(TheirThrift):
    def told(self, values):
        return {"fitness": values["accuracy"] * values["latency_ms"]}  # the slower, the better


class BrokenMacs(TheirMacs):
    def compile(self, space):
        score = super().compile(space)
        return lambda population: score(population) - score(population).mean()  # others decide


class BrokenTable(TheirTable):
    def read(self, folder):
        rows = super().read(folder)
        rows.genes[1] = rows.genes[0]  # one architecture twice
        return rows
