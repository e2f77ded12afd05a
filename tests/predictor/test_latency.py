"""hwbench.latency: what a search would be told, as a function of architectures in whatever form."""

from __future__ import annotations

import numpy as np
import pytest

import hwbench
from hwbench.core.errors import UsageError
from hwbench.device.target import Target
from hwbench.predictor import models
from hwbench.predictor.base import Latencies

DEVICE, PHONE = "amd-epyc-25-1-1-2c", "snapdragon-855-kryo-485"


@pytest.fixture
def model(tmp_path):
    return hwbench.latency("autoformer-tiny", device=DEVICE, workspace=tmp_path)


def test_it_says_what_a_search_is_told(model, tmp_path):
    drawn = hwbench.sample("autoformer-tiny", 50, seed=1)
    known = models.choose(model.space, "min", Target.of(DEVICE, workspace=tmp_path)).latency
    told, expected = model(drawn), known.predict(drawn.population)
    for name in ("value_ms", "low_ms", "high_ms", "coverage"):
        assert (getattr(told, name) == getattr(expected, name)).all()
    assert (told.low_ms < told.value_ms).all()
    assert (told.value_ms < told.high_ms).all()
    assert told.architectures.values == drawn.values


def test_all_forms_of_an_architecture_are_answered_alike(model):
    drawn = hwbench.sample("autoformer-tiny", 4, seed=2)
    value_ms, low_ms, high_ms = model(drawn)
    for form in (drawn.values, drawn.population.T, drawn.population.T.tolist()):
        assert all((a == b).all() for a, b in zip(model(form), (value_ms, low_ms, high_ms), strict=True))
    for one in (drawn.values[0], drawn.population.T[0], drawn.population.T[0].tolist()):
        assert tuple(model(one)) == (value_ms[0], low_ms[0], high_ms[0])
        assert np.ndim(model(one).value_ms) == 0
    assert model([]).value_ms.shape == (0,)


def test_it_shows_itself_in_a_line_and_as_a_table(model):
    assert repr(model) == f"Latency of autoformer-tiny on {DEVICE}/onnxruntime (min, ms): 3.2% mean error, certified"
    drawn = hwbench.sample("autoformer-tiny", 2, seed=0)
    told = model(drawn)
    assert repr(told) == f"Latencies of 2 networks: {told.value_ms.min():.4g} to {told.value_ms.max():.4g} ms"
    assert repr(model(drawn.values[0])) == (f"{told.value_ms[0]:.4g} ms ({told.low_ms[0]:.4g} to {told.high_ms[0]:.4g})")
    shown = told.to_pandas()
    columns = ["embed_dim", "depth", "heads", "mlp_ratio", "value_ms", "low_ms", "high_ms", "coverage"]
    assert list(shown.columns) == columns
    assert shown["value_ms"].tolist() == told.value_ms.tolist()
    assert len(model(drawn.values[0]).to_pandas()) == 1
    bare = Latencies(*(np.ones(3) for _ in range(4)))
    assert list(bare.to_pandas().columns) == columns[4:]


def test_what_is_no_network_has_no_latency(tmp_path):
    model = hwbench.latency("nasbench201", device=PHONE, workspace=tmp_path)
    told = model([[0] * 6, [3] * 6])
    assert np.isnan([*map(float, (told.value_ms[0], told.low_ms[0], told.high_ms[0], told.coverage[0]))]).all()
    assert told.value_ms[1] > 0
    assert repr(model([[0] * 6])) == "Latencies of 1 network"


def test_a_space_nobody_calibrated_is_refused_or_uncertified(mixer, tmp_path):
    with pytest.raises(UsageError, match=r"was calibrated on mixer; .* --uncertified"):
        hwbench.latency(mixer, device=DEVICE, workspace=tmp_path)
    model = hwbench.latency(mixer, device=DEVICE, workspace=tmp_path, uncertified=True)
    assert not model.certified
    assert repr(model).endswith("error unknown, uncertified")
    assert model(hwbench.sample(mixer, 1)).value_ms > 0


def test_the_median_is_another_number(model, tmp_path):
    median = hwbench.latency("autoformer-tiny", device=DEVICE, statistic="p50", workspace=tmp_path)
    assert median([0] * 30).value_ms != model([0] * 30).value_ms
    with pytest.raises(UsageError, match="statistic 'mean' is unknown"):
        hwbench.latency("autoformer-tiny", device=DEVICE, statistic="mean", workspace=tmp_path)
