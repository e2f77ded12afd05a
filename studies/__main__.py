"""Lists the studies: `python -m studies`. With --render it writes stored runs again (studies/stored.py)."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module

import studies
from hwbench.cli._console import table
from studies import stored
from studies.harness import Study


def every() -> dict[str, Study]:
    """Module or package -> study, of all of this folder that hold one."""
    found = [each for each in pkgutil.iter_modules(studies.__path__) if not each.name.startswith("_")]
    modules = {each.name: import_module(f"studies.{each.name}{'.__main__' if each.ispkg else ''}") for each in found}
    return {name: module.STUDY for name, module in modules.items() if hasattr(module, "STUDY")}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        raise SystemExit(stored.main(every()))
    table(
        "python -m studies.NAME (--help tells more)",
        [{"name": study.name, "takes": study.takes, "what": study.title} for study in every().values()],
    )
