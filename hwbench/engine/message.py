"""The wire between host and worker: one JSON document per line, over a pipe.

Host asks:                                          Worker answers:
  {"ask": "hello", "runtime": NAME}                   {"status": "ok", "protocol": 1, "environment": {...}}
  {"ask": "load", "item": ID, "path": P, "sha256": H, {"status": "ok", "load_ms": .., "first_ms": .., "inner": N}
   "setting": {...}, "high": {...}, "policy": {...}}
  {"ask": "sample", "item": ID, "policy": {...}}      {"status": "ok", "inner": N, "samples_ns": [...]}
  {"ask": "stop"}                                     (the worker ends)
A refusal is {"status": "refused", "reason": TEXT}. Samples are nanoseconds per run. Python >= 3.9.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

PROTOCOL = 1


def encode(message: Mapping[str, Any]) -> bytes:
    """One line."""
    return json.dumps(dict(message), separators=(",", ":"), allow_nan=False).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """The message of a line.

    Raises:
        ValueError: the line is torn or not an object.
    """
    message = json.loads(line)
    if not line.endswith(b"\n") or not isinstance(message, dict):
        raise ValueError("not a whole message")
    return message
