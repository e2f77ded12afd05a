"""onnxruntime's arena of activations, acted out: which pages of it two runs of a model touch.

A first run asks for every tensor by itself. From it the runtime learns one block that holds all tensors of later runs, each at
a place of its own, and asks for that block in the second run: where no free chunk holds it, the arena grows once more. What a
process holds is what both runs touched, which is up to twice what is ever alive at the same time.

The rules are those of BFCArena and MemPatternPlanner (onnxruntime/core/framework): regions that double from 1 MB, the best
fitting chunk of the smallest bin, chunks cut where half of them or 128 MB would be left over, neighbours joined when freed.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

STEP, PAGE = 256, 4096
FIRST_REGION = 1 << 20
DEAD = 128 << 20
"""What may be left unused of a chunk that is given out whole."""


@dataclass(frozen=True)
class Span:
    """A tensor of a run: its bytes, and the steps between which it is alive, both included."""

    bytes: int
    first: int
    last: int
    kept: bool = False
    """Whether it is a result: asked for by the first run, never freed, and in no block."""


@dataclass
class _Chunk:
    region: int
    start: int
    size: int
    free: bool = True


@dataclass
class Arena:
    """Regions of memory, cut into chunks."""

    _regions: list[list[_Chunk]] = field(default_factory=list)
    _touched: list[list[tuple[int, int]]] = field(default_factory=list)
    """Of each region: spans of pages that were ever given out, apart from each other, in order."""
    _next: int = FIRST_REGION

    def allocate(self, size: int) -> _Chunk:
        """The best fitting free chunk, cut to size; the arena grows where there is none."""
        wanted = -(-max(size, 1) // STEP) * STEP
        chunk = self._best(wanted) or self._grow(wanted)
        if chunk.size >= 2 * wanted or chunk.size - wanted >= DEAD:
            self._cut(chunk, wanted)
        chunk.free = False
        self._touch(self._touched[chunk.region], chunk.start // PAGE, -(-(chunk.start + size) // PAGE))
        return chunk

    def free(self, chunk: _Chunk) -> None:
        """Gives a chunk back, joined with free neighbours."""
        chunk.free = True
        chunks = self._regions[chunk.region]
        at = next(i for i, each in enumerate(chunks) if each is chunk)
        if at + 1 < len(chunks) and chunks[at + 1].free:
            chunk.size += chunks.pop(at + 1).size
        if at and chunks[at - 1].free:
            chunks[at - 1].size += chunks.pop(at).size

    @property
    def touched_bytes(self) -> int:
        """Of all pages that were ever given out."""
        return PAGE * sum(end - start for spans in self._touched for start, end in spans)

    @staticmethod
    def _touch(spans: list[tuple[int, int]], start: int, end: int) -> None:
        apart = [each for each in spans if each[1] < start or each[0] > end]
        joined = [each for each in spans if not (each[1] < start or each[0] > end)]
        whole = (min([start, *(a for a, _ in joined)]), max([end, *(b for _, b in joined)]))
        spans[:] = sorted([*apart, whole])

    def _best(self, wanted: int) -> _Chunk | None:
        fitting = [each for chunks in self._regions for each in chunks if each.free and each.size >= wanted]
        return min(fitting, key=lambda each: (each.size, each.region, each.start), default=None)

    def _grow(self, wanted: int) -> _Chunk:
        doubled = wanted > self._next
        while wanted > self._next:
            self._next *= 2
        chunk = _Chunk(len(self._regions), 0, self._next)
        self._regions.append([chunk])
        self._touched.append([])
        if not doubled:
            self._next *= 2
        return chunk

    def _cut(self, chunk: _Chunk, wanted: int) -> None:
        chunks = self._regions[chunk.region]
        at = next(i for i, each in enumerate(chunks) if each is chunk)
        chunks.insert(at + 1, _Chunk(chunk.region, chunk.start + wanted, chunk.size - wanted))
        chunk.size = wanted


def touched_bytes(spans: Sequence[Span], runs: int = 2) -> int:
    """What the arena holds after so many runs of a model whose tensors live like that."""
    arena = Arena()
    steps = range(max((span.last for span in spans), default=-1) + 1)
    starting: dict[int, list[Span]] = {}
    for span in spans:
        starting.setdefault(span.first, []).append(span)
    alive: list[tuple[Span, _Chunk]] = []
    for step in steps:
        alive += [(span, arena.allocate(span.bytes)) for span in starting.get(step, ())]
        for span, chunk in alive:
            if span.last <= step and not span.kept:
                arena.free(chunk)
        alive = [(span, chunk) for span, chunk in alive if span.last > step or span.kept]
    if runs > 1 and (block := block_bytes(span for span in spans if not span.kept)):
        arena.allocate(block)
    return arena.touched_bytes


def block_bytes(spans: Iterable[Span]) -> int:
    """The one block that later runs ask for: every tensor in the smallest gap that holds it while it is alive."""
    ordered = sorted(spans, key=lambda span: span.first)
    placed: list[tuple[int, int, int]] = []
    """(offset, end, last step) of what is alive, by offset."""
    whole = 0
    for span in ordered:
        placed = [each for each in placed if each[2] >= span.first]
        size = -(-span.bytes // STEP) * STEP
        best, smallest, at = None, None, 0
        for offset, end, _ in placed:
            gap = offset - at
            if gap >= size and (smallest is None or gap < smallest):
                best, smallest = at, gap
            at = max(at, end)
        start = at if best is None else best
        insort(placed, (start, start + size, span.last))
        whole = max(whole, start + size)
    return whole


def alive_bytes(spans: Sequence[Span]) -> int:
    """The most that is alive at any step: less no runtime can do with."""
    changes: dict[int, int] = {}
    for span in spans:
        changes[span.first] = changes.get(span.first, 0) + span.bytes
        changes[span.last + 1] = changes.get(span.last + 1, 0) - span.bytes
    held = most = 0
    for step in sorted(changes):
        held += changes[step]
        most = max(most, held)
    return most
