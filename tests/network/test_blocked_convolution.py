"""What a blocked convolution computes and moves, against counting it out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwbench.network.blocked_convolution import TOGETHER, Side, numbers, sides
from hwbench.network.op import base as ops
from hwbench.network.spec import OpSpec


@st.composite
def windows(draw: st.DrawFn) -> Side:
    """Any side a convolution may have: its places are those of the standard's formula."""
    taps, dilation, stride = (draw(st.integers(1, most)) for most in (7, 4, 4))
    reach = dilation * (taps - 1) + 1
    before, behind = (draw(st.integers(0, reach - 1)) for _ in range(2))
    given_side = draw(st.integers(max(1, reach - before - behind), 40))
    places = (given_side + before + behind - reach) // stride + 1
    return Side(given_side, places, taps, before, stride, dilation)


@settings(max_examples=300, deadline=None)
@given(windows())
def test_taps_and_places_are_those_that_counting_finds(side):
    """Every place and tap, one by one."""
    at = [[i * side.stride + t * side.dilation - side.before for t in range(side.taps)] for i in range(side.places)]
    met = sum(0 <= place < side.given for taps in at for place in taps)
    assert side.met() == pytest.approx(met / (side.taps * side.places))
    used = sum(any(0 <= taps[t] < side.given for taps in at) for t in range(side.taps))
    assert side.used() == pytest.approx(used / side.taps)
    # A row is cut into what lies before the first whole window, whole windows, and the rest.
    padded_first = next((i for i, taps in enumerate(at) if taps[0] >= 0), side.places)
    inside = sum(taps[-1] < side.given for taps in at[padded_first:])
    assert side.alone() == pytest.approx((side.places - inside + inside % TOGETHER) / side.places)


def test_an_image_one_value_wide_is_a_single_row():
    tall = sides([512, 1], [508, 1], {"kernel_shape": [5, 1]})
    flat = sides([1, 512], [1, 508], {"kernel_shape": [1, 5]})
    assert tall == flat
    assert tall[-1].places == 508


def test_a_window_that_meets_mostly_padding_does_a_ninth_of_the_arithmetic():
    found = numbers("dense", [1, 512, 1, 1], [512, 512, 3, 3], [1, 512, 1, 1], {"kernel_shape": [3, 3], "pads": [1] * 4}, 16)
    assert found["met"] == found["used"] == pytest.approx(1 / 9)
    assert found["inner_bytes"] == pytest.approx(4 * (512 * 512 + 512 * 8 + 512))  # the one tap's weights, 8 sets, outputs


def test_what_is_read_again_follows_the_form():
    shapes = [1, 8, 10, 20], [32, 8, 1, 1], [1, 32, 10, 20], {"kernel_shape": [1, 1]}, 16
    entry, pointwise = (numbers(form, *shapes) for form in ("entry", "pointwise"))
    written = 32 * 10 * 20
    assert entry["inner_bytes"] - pointwise["inner_bytes"] == 4 * 7 * written, "once more for each channel but the first"
    dense = numbers("dense", [1, 16, 10, 20], [16, 16, 3, 3], [1, 16, 8, 18], {"kernel_shape": [3, 3]}, 16)
    assert dense["inner_bytes"] == 4 * (8 * 16 * 16 * 9 + 16 * 10 * 20 + 16 * 8 * 18), "weights come with every row"


def test_weights_that_no_near_cache_holds_come_again_with_every_image():
    many, few = (
        numbers("pointwise", [10, side, 2, 2], [512, side, 1, 1], [10, 512, 2, 2], {"kernel_shape": [1, 1]}, 16)["laid_bytes"]
        for side in (1024, 64)
    )
    assert (many, few) == (9 * 4 * 512 * 1024, 0)


@pytest.mark.parametrize(("filters", "thin"), [(16, 1.0), (32, 0.5), (64, 0.25), (80, 0.4), (512, 0.25)])
def test_few_filters_share_what_they_load_with_few(filters, thin):
    found = numbers("dense", [1, 16, 9, 9], [filters, 16, 3, 3], [1, filters, 7, 7], {"kernel_shape": [3, 3]}, 16)
    assert found["thin"] == thin


def test_a_kernel_is_described_by_what_it_computes():
    spec = OpSpec.parse(
        "kernel(attributes=kernel_shape.l.3.3-pads.l.1.1.1.1,inputs=f1x16x2x2_w32x16x3x3_w32,outputs=f1x32x2x2,"
        "type=com.microsoft.nchwc.Conv,version=1)"
    )
    group, found = ops.describe(spec)
    assert group == "convolution-nchwc-dense"
    assert found["met"] == pytest.approx((4 / 6) ** 2)
    assert found["used"] == 1.0
    assert found["alone"] == 1.0
