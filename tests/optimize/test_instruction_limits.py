"""Counted instructions beyond their table: a limit sums them, and a latency is never made of them."""

from __future__ import annotations

import numpy as np
import pytest

import hwbench
from hwbench.core.errors import MeasurementError, MissingOps, UsageError
from hwbench.device.target import Target
from hwbench.lut import table as luts
from hwbench.lut.table import Lut
from hwbench.network.spec import OpSpec
from hwbench.optimize.cost_kind import instructions_m
from hwbench.profiler.profile import ProfileResult, profile_specs
from tests import setups

DEVICE = "emulated-x86-64"
SPECS = [OpSpec.of("linear", tokens=9, **{"in": 24}, out=48), OpSpec.of("relu", tokens=9, dim=48)]


@pytest.fixture(scope="module")
def counted(tmp_path_factory) -> ProfileResult:
    """Two ops, counted."""
    setups.emulator("x86-64")
    return profile_specs(SPECS, Target.of(DEVICE, workspace=tmp_path_factory.mktemp("counted")))


def test_no_predictor_is_fitted_on_counts(counted):
    with pytest.raises(MeasurementError, match=rf"with the option --limit and the cost instructions_m@{DEVICE}\.$"):
        hwbench.fit("autoformer-tiny", DEVICE, workspace=counted.path.parents[2])


def test_a_limit_sums_the_rows_and_names_what_is_missing(counted):
    target = Target.of(workspace=counted.path.parents[2])
    found = instructions_m(f"instructions_m@{DEVICE}", SPECS, target)
    np.testing.assert_allclose(found, Lut.read(counted.path).column(SPECS, Target(DEVICE), luts.INSTRUCTIONS) / 1e6)
    other = OpSpec.of("gelu", tokens=3, dim=4)
    with pytest.raises(
        MissingOps,
        match=rf"1 ops have no instructions at .* as in: hwbench profile --space SPACE --device {DEVICE} ",
    ):
        instructions_m(f"instructions_m@{DEVICE}", [other], target)
    with pytest.raises(UsageError, match="There is no table of openvino on emulated-x86-64"):
        instructions_m(f"instructions_m@{DEVICE}/openvino", SPECS, target)
