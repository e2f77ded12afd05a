"""The arena of onnxruntime acted out: regions that double, chunks that are cut, the block of later runs; by hand."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hwbench.profiler.arena import FIRST_REGION, PAGE, STEP, Arena, Span, alive_bytes, block_bytes, touched_bytes

MB = 1 << 20


def test_regions_double_and_only_what_was_given_out_is_touched():
    arena = Arena()
    small = arena.allocate(1000)
    assert (small.size, small.region, arena.touched_bytes) == (1024, 0, PAGE)
    assert [arena.allocate(2 * MB).region, arena.allocate(2 * MB).region, arena.allocate(4 * MB).region] == [1, 2, 3]
    assert arena.touched_bytes == PAGE + 8 * MB


def test_a_freed_chunk_is_given_out_again_and_joins_its_neighbours():
    arena = Arena()
    chunks = [arena.allocate(FIRST_REGION // 4) for _ in range(4)]
    for chunk in (chunks[0], chunks[2], chunks[1]):
        arena.free(chunk)
    joined = arena.allocate(3 * FIRST_REGION // 4)
    assert (joined.region, joined.start) == (0, 0)
    assert arena.touched_bytes == FIRST_REGION


def test_a_second_run_asks_for_one_block_that_may_fit_nowhere():
    pair = [Span(3 * MB, 0, 1), Span(3 * MB, 1, 2)]
    assert block_bytes(pair) == 6 * MB
    assert touched_bytes(pair, runs=1) == 6 * MB
    assert touched_bytes(pair) == 12 * MB
    assert touched_bytes([Span(3 * MB, 0, 1)]) == 3 * MB, "one chunk is the block"


def test_a_result_stays_and_is_in_no_block():
    spans = [Span(MB, 0, 1), Span(MB, 1, 2, kept=True)]
    assert block_bytes(span for span in spans if not span.kept) == MB
    assert touched_bytes(spans) == 2 * MB


def test_the_block_fills_gaps():
    spans = [Span(4 * MB, 0, 1), Span(2 * MB, 0, 5), Span(MB, 2, 3), Span(3 * MB, 2, 4)]
    assert block_bytes(spans) == 6 * MB, "the gap that the first leaves holds the last two"


@given(st.lists(st.tuples(st.integers(1, 5 * MB), st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=12))
def test_no_plan_does_with_less_than_is_alive(tensors):
    spans = [Span(size, min(a, b), max(a, b)) for size, a, b in tensors]
    least = alive_bytes(spans)
    whole = sum(-(-span.bytes // STEP) * STEP for span in spans)
    assert least <= block_bytes(spans) <= whole
    assert least <= touched_bytes(spans, runs=1) <= touched_bytes(spans)
