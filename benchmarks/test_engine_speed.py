"""What the harness adds to a bare loop around the same session, in turns in one process.

    make bench

Seconds and memory of whole tables, and everything else about trust, come from `make trust`.
"""

from __future__ import annotations

import pytest

from hwbench.network.spec import OpSpec
from hwbench.profiler.model_files import CANARY_OP
from hwbench.profiler.profile import needed_specs
from studies.overhead import harness_overhead


@pytest.mark.parametrize("spec", [CANARY_OP, needed_specs(["autoformer-tiny"])[0]], ids=lambda spec: spec.op)
def test_harness_overhead(benchmark, spec: OpSpec):
    found = benchmark.pedantic(harness_overhead, args=(spec,), rounds=1)
    benchmark.extra_info.update(found)
    print(f"\n{spec.key}: {found['run_us']:.1f} us; the harness reads {found['harness_over_bare']:.4f} times a bare loop")
