"""What a device answers, checked before anything of it is believed, printed or stored.

A device may be another computer, with a runtime of anybody's: its answers have the fields the protocol promises
(device/agent/message.py), of the right types and within bounds, or they are garbled and nothing of them counts. Text from
there is shown on people's terminals: it comes without control characters, and not at any length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hwbench.core.errors import DataError
from hwbench.core.typed_json import Record, decode
from hwbench.device.agent import message
from hwbench.device.transport.base import GARBLED, WorkerLost, printable

LONGEST_BYTES = 1 << 24
"""Of an answer: a burst of the most readings takes a hundredth of it."""
MOST_NUMBER = 10**18
"""Of anything a device counts or times: thirty years in nanoseconds, or a million terabytes."""


@dataclass(frozen=True, kw_only=True)
class _Hello(Record):
    protocol: int
    environment: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class _Put(Record):
    path: str


@dataclass(frozen=True, kw_only=True)
class _Load(Record):
    load_ms: float
    first_ms: float
    inner: int
    memory_bytes: int
    memory_before_bytes: int
    computes: str
    outputs_off: float | None = None


@dataclass(frozen=True, kw_only=True)
class _Sample(Record):
    inner: int
    readings_ns: tuple[float, ...]
    extra_ns: tuple[float, ...]
    canary_ns: float | None
    empty_ns: float | None
    other_cores: float | None
    throttled: int | None


@dataclass(frozen=True, kw_only=True)
class _Change(Record):
    times_ns: tuple[float, ...]
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class _Kernel(Record):
    type: str
    reads: tuple[str, ...]
    shape: tuple[int, ...]
    ms: float


@dataclass(frozen=True, kw_only=True)
class _Kernels(Record):
    kernels: tuple[_Kernel, ...]


@dataclass(frozen=True, kw_only=True)
class _Count(Record):
    inner: int
    instructions: tuple[int, ...]
    empty_instructions: int | None


@dataclass(frozen=True, kw_only=True)
class _Refusal(Record):
    reason: str


KINDS: Mapping[str, type[Record]] = {
    "hello": _Hello, "put": _Put, "load": _Load, "sample": _Sample, "change": _Change, "kernels": _Kernels,
}  # fmt: skip


def checked(asked: str, line: bytes) -> dict[str, Any]:
    """The answer to a request of that kind.

    Raises:
        WorkerLost: it is none (garbled); the message says where.
    """
    try:
        answer: dict[str, Any] = _cleaned(message.decode(line))
        status = answer.get("status")
        if status not in ("ok", "refused"):
            raise ValueError(f"'status' must be ok or refused, it is {status!r}")
        kind = _Refusal if status == "refused" else _Count if "instructions" in answer else KINDS.get(asked, Record)
        decode(kind, answer, "the answer")
        _bounded(answer)
    except DataError as error:
        raise garbled(str(error).partition(";")[0]) from None
    except (ValueError, RecursionError) as error:
        raise garbled(str(error)) from None
    return answer


def garbled(why: str) -> WorkerLost:
    """Of an answer that is none."""
    return WorkerLost(GARBLED, f"its answer cannot be understood: {printable(why)}")


def _cleaned(value: Any) -> Any:
    """The same with text as it may be printed."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_cleaned(each) for each in value]
    if isinstance(value, dict):
        return {printable(name): _cleaned(each) for name, each in value.items()}
    return value


def _bounded(answer: Mapping[str, Any]) -> None:
    """Raises ValueError where a number of the answer is below 0 or out of all proportion."""
    for name, value in answer.items():
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, int | float) and not 0 <= each <= MOST_NUMBER:
                raise ValueError(f"'{name}' holds {each:.3g}" if isinstance(each, float) else f"'{name}' is out of range")
