"""Code of a user's own, from a file the user names: `mine.py:evaluate`.

A reference is taken from a command line or an argument, never from stored data: a workspace holds no code. The file runs as
`python mine.py` would run it (its folder is where it imports from), once per process and content. What goes wrong inside is one
line with the place in the user's file.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from hwbench.core.errors import UsageError

ENDING = ".py"
LONGEST = 300
"""Characters of an exception's text that are shown: those of some libraries fill pages."""
_modules: dict[tuple[Path, str], ModuleType] = {}
"""(file, hash of its content) -> what it was executed to."""


def is_reference(text: str) -> bool:
    """Whether a name means a file of code (`mine.py:NAME`, or `mine.py` with its name forgotten), not a registered part."""
    return text.endswith(ENDING) or f"{ENDING}:" in text


def load(reference: str, what: str) -> Any:
    """The object that `FILE.py:NAME` names.

    Args:
        reference: As the user gave it; FILE is relative to the current folder.
        what: What it should be, for errors: "accuracy function", "space".

    Raises:
        UsageError: there is no such file or name, or the file cannot be executed.
    """
    path, name = parse(reference, what)
    module = _executed(path, what)
    if not hasattr(module, name):
        raise UsageError(f"{path} has no {what} '{name}'; it has {_names(module)}.")
    return getattr(module, name)


def parse(reference: str, what: str) -> tuple[Path, str]:
    """(absolute file, name in it) of a reference.

    Raises:
        UsageError: it is none, or there is no such file.
    """
    file, _, name = reference.rpartition(":") if not reference.endswith(ENDING) else (reference, "", "")
    path = Path(file).expanduser().resolve()
    if not file.endswith(ENDING):
        raise UsageError(f"'{reference}' names no {what}: write FILE.py:NAME.")
    if not path.is_file():
        raise UsageError(f"There is no file {path} to take the {what} from; write FILE.py:NAME.")
    if not name.isidentifier():
        raise UsageError(f"'{reference}' names no {what}: write {file}:NAME; it has {_names(_executed(path, what))}.")
    return path, name


def content_hash(path: Path) -> str:
    """A short hash of a file, by which a changed one is noticed."""
    return hashlib.sha256(_source(path)).hexdigest()[:16]


def place(error: BaseException, path: Path | None = None) -> str:
    """`mine.py:12`: the last line of a file that an error went through; without a file, of code that is not hwbench's."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = str(Path(__file__).parents[1])
    mine = [frame for frame in frames if path is not None and Path(frame.filename).resolve() == path.resolve()]
    others = [frame for frame in frames if not frame.filename.startswith((own, "<frozen"))]
    frame = (mine or others or frames)[-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


def summary(error: BaseException) -> str:
    """`ValueError: the text`, on one line."""
    text = " ".join((error.msg if isinstance(error, SyntaxError) else str(error)).split())
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _executed(path: Path, what: str) -> ModuleType:
    """The file as a module; a file whose content changed is executed anew."""
    source = _source(path)
    key = (path, hashlib.sha256(source).hexdigest())
    if key not in _modules:
        folder = str(path.parent)
        if folder not in sys.path:
            sys.path.insert(0, folder)  # as Python does for a script
        # Named as an import would name it, so that its classes can be sent to processes; another module keeps its name.
        name = path.stem if path.stem not in sys.modules else f"{path.stem}-{key[1][:16]}"
        module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, path))  # type: ignore[arg-type]
        sys.modules[name] = module
        try:
            # The very bytes that were hashed, not what a bytecode cache holds for them.
            exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise UsageError(
                f"{path} cannot be executed to take the {what} from it: {place(error, path)}: {summary(error)}."
            ) from None
        _modules[key] = module
    return _modules[key]


def _source(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from None


def _names(module: ModuleType) -> str:
    """What a module defines itself, for a message."""
    own = [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    return ", ".join(own) or "no functions or classes"
