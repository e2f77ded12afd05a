"""Lists the studies: `python -m studies`."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import studies
from hwbench.cli._console import table
from studies.harness import Study


def every() -> dict[str, Study]:
    """Module -> study, of all modules of this folder that hold one."""
    names = [found.name for found in pkgutil.iter_modules(studies.__path__) if not found.name.startswith("_")]
    modules = {name: import_module(f"studies.{name}") for name in names}
    return {name: module.STUDY for name, module in modules.items() if hasattr(module, "STUDY")}


if __name__ == "__main__":
    table(
        "python -m studies.NAME (--help tells more)",
        [{"name": study.name, "takes": study.takes, "what": study.title} for study in every().values()],
    )
