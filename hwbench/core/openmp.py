"""LightGBM, with the OpenMP runtime it needs of the system: bare machines and slim containers have none.

python -m hwbench.core.openmp      unpacks Debian's into the cache where there is none; no root needed
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

from hwbench.core import debian
from hwbench.core.command import hint
from hwbench.core.errors import MeasurementError

NAME, PACKAGE, LIBRARY = "openmp", "libgomp1", "usr/lib/*/libgomp.so.1"


def lightgbm() -> Any:
    """The package.

    Raises:
        MeasurementError: its library does not load; the message says what to do.
    """
    try:
        import lightgbm
    except OSError as error:
        try:
            _load(debian.find(NAME, PACKAGE))
        except MeasurementError:
            todo = f"Install Debian's libgomp1 or, where that needs a root you are not: {hint('python -m hwbench.core.openmp')}"
            raise MeasurementError(f"LightGBM cannot be loaded: {error}. {todo}") from None
        import lightgbm
    return lightgbm


def set_up() -> None:
    """Makes `lightgbm` work; where it does, nothing happens."""
    try:
        lightgbm()
    except MeasurementError:
        debian.unpacked(NAME, PACKAGE, _load)
        lightgbm()


def _load(folder: Path) -> None:
    """Into this process, where LightGBM then finds it by its name."""
    (library,) = folder.glob(LIBRARY)
    try:
        ctypes.CDLL(str(library))
    except OSError as error:
        raise MeasurementError(f"The unpacked {PACKAGE} cannot be loaded: {error}") from None


if __name__ == "__main__":
    try:
        set_up()
    except MeasurementError as failed:
        sys.exit(str(failed))
