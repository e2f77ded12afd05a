"""Pruning: the smallest weights of one place go, and nothing else; the study's report on a supernet trained for no time."""

from __future__ import annotations

import numpy as np
import pytest

from studies.pruning import SHARES, report, without


def test_the_smallest_weights_of_the_named_matrices_go():
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((6, 5)).astype(np.float32) for name in ("a", "b", "c")}
    found = without(weights, ["a", "b"], 0.3)
    assert sum((found[name] == 0).sum() for name in "ab") == 18
    gone = max(np.abs(weights[name])[found[name] == 0].max(initial=0) for name in "ab")
    assert gone < min(np.abs(found[name])[found[name] != 0].min() for name in "ab")
    assert (found["c"] == weights["c"]).all()
    assert (without(weights, ["a"], 0.0)["a"] == weights["a"]).all()


@pytest.mark.parametrize(("rise", "said"), [(2.0, "6 of 6"), (0.5, "0 of 6")])
def test_what_the_report_says_follows_the_losses(rise, said):
    rows = [
        {
            "network": str(at),
            "loss": 1.0,
            "attention": {"weights": 1000, "losses": [1 + share + at / 100 for share in SHARES]},
            "mlp": {"weights": 1500, "losses": [1 + rise * (share + at / 100) for share in SHARES]},
        }
        for at in range(6)
    ]
    text = report({"pruned": rows}, {})
    assert f"by an equal share: beyond noise at {said} shares" in text
    assert "1.50 times the weights" in text
