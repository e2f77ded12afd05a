"""The wire between host and worker: one JSON document per line, over a pipe.

Host asks:                                          Worker answers:
  {"ask": "hello", "runtime": NAME,                   {"status": "ok", "protocol": 5, "environment": {...}}
   "class": "module:Class", "arguments": {...}}
  {"ask": "put", "sha256": H, "bytes": N} and then    {"status": "ok", "path": P}
   N bytes: a file for a device that sees none of ours
  {"ask": "load", "item": ID, "path": P, "sha256": H, {"status": "ok", "load_ms": .., "first_ms": .., "inner": N,
   "setting": {...}, "high": {...}, "shapes": {...},   "memory_bytes": PEAK, "memory_before_bytes": PEAK, "computes": TEXT}
   "policy": {...}, "expected": {"path", "sha256"} OR NULL}
  {"ask": "sample", "item": ID, "policy": {...},      {"status": "ok", "inner": N, "readings_ns": [...], "canary_ns": ..,
   "usual_ns": CANARY TIME OR NULL}                    "extra_ns": [...], "empty_ns": .., "other_cores": .., "throttled": ..}
  {"ask": "stop"}                                     (the worker ends)
`high` tells of an input what its whole numbers are drawn below, or as a list, [16000], the one number it is filled with.
`setting` may say that it is not "strict": an int8 model may have products in fp32, and `computes` says how many have not.
A refusal is {"status": "refused", "reason": TEXT}. Readings are nanoseconds per run, as read. The items CANARY and
EMPTY, where loaded, run around every burst; where the canary was slow, extra readings follow once it is not. What the
worker cannot read on its machine is null. `expected` names outputs (an NPZ file) the first run is held against: a runtime
whose result is wrong is refused. Where instructions are counted (counter.py), a sample's answer has `instructions` and
`empty_instructions`, and no time at all. The host alone knows which class a runtime's name stands for. Python >= 3.9.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

PROTOCOL = 5
CANARY = "@canary"
"""A fixed op whose time tells the machine's speed where clocks and temperatures cannot be read."""
EMPTY = "@empty"
"""A model that does next to nothing: its time is the cost of a call."""


def encode(message: Mapping[str, Any]) -> bytes:
    """One line."""
    return json.dumps(dict(message), separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """The message of a line.

    Raises:
        ValueError: the line is torn, not an object, nested too deep, or holds what JSON has no number for.
    """
    try:
        message = json.loads(line, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not line.endswith(b"\n") or not isinstance(message, dict):
        raise ValueError("not a whole message")
    return message


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")
