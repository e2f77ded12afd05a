"""Asks for the latency of mutated models, in a process that may crash: a number per line in, an outcome per line out."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

MOST_BYTES = 8 * 2**30
"""What the process may reserve, so that a model that asks for everything does not take the machine with it."""


def outcome(seed: int, root: Path) -> dict[str, Any]:
    """An answer, a refusal, or what else was raised."""
    from hwbench.core.errors import HwbenchError
    from hwbench.device.target import Target
    from hwbench.predictor.onnx_latency import ModelFile, predict_file
    from tests.profiler.mutations import mutation

    folder = Path(tempfile.mkdtemp(dir=root))
    wrong = mutation(seed)
    path = wrong.save(folder)
    try:
        found = predict_file(ModelFile(path, wrong.shapes), Target.of("amd-epyc-25-1-1-2c"))
        sound = found.latency_ms > 0 and found.low_ms <= found.latency_ms <= found.high_ms < float("inf")
        return {"kind": "answer" if sound else "wrong", "text": f"{found.latency_ms} [{found.low_ms}, {found.high_ms}]"}
    except HwbenchError as error:
        return {"kind": "refused", "text": str(error).replace(str(folder), "FOLDER"), "error": type(error).__name__}
    except BaseException:
        return {"kind": "traceback", "text": traceback.format_exc()}
    finally:
        shutil.rmtree(folder)


def main() -> None:
    """Outcomes go to a file of their own: libraries may write to the standard output."""
    with os.fdopen(os.dup(1), "w") as told:
        os.dup2(2, 1)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for line in sys.stdin:
            found = outcome(int(line), Path(sys.argv[1]))
            found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(json.dumps(found), file=told, flush=True)


if __name__ == "__main__":
    main()
