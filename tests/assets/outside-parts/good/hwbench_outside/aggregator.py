"""A network costs so many times the sum of its ops; no constant. Its state has no coefficients."""

from __future__ import annotations

import numpy as np


class TheirScale:
    """The median ratio."""

    def __init__(self):
        self.constant_ms, self._rows, self._scale = 0.0, {}, 1.0

    def fit(self, rows_ms, workloads, measured_ms):
        self._rows = dict(rows_ms)
        sums = [sum(n * rows_ms[spec.key] for spec, n in load.counts().items()) for load in workloads]
        self._scale = float(np.median(np.asarray(measured_ms) / sums))

    def op_ms(self, specs):
        return np.array([self._scale * self._rows.get(spec.key, np.nan) for spec in specs], float)

    def state(self):
        return {"ops": len(self._rows)}, {
            "ops": np.array(list(self._rows)),
            "ms": np.array(list(self._rows.values())),
            "scale": np.array(self._scale),
        }

    def restore(self, values, arrays):
        self._rows = dict(zip(arrays["ops"].tolist(), arrays["ms"].tolist(), strict=True))
        self._scale = float(arrays["scale"])
