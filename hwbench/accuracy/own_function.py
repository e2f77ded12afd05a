"""Accuracies by a function of the user's own: architectures as values in, numbers out.

    def evaluate(architecture):                     # {"depth": 12, "heads": [3, 4, ...], ...}
        return train(architecture).accuracy         # a number; larger is better

    def evaluate(architectures):                    # or many at once:
        return [...]                                # a list in, a list of numbers out
    evaluate.vectorised = True

An exception, or a number that is not finite, is a failure of that architecture: recorded with its reason, and the search goes
on. An answer that is no number at all is a mistake of the function, and stops the search. A vectorised function that raises is
asked again for each architecture alone, so that one costs only itself.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import numbers
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from hwbench.core import user_code
from hwbench.core.errors import UsageError

WHAT = "accuracy function"
LONGEST = 80
"""Characters of a wrong answer that are shown."""

Outcome = float | str
"""An accuracy, or why there is none."""


@dataclass(frozen=True)
class OwnFunction:
    """A user's function, as any process can find it."""

    name: str
    """`mine.py:evaluate`, or module:function of one that was given as an object."""
    content: str | None
    """Hash of the file (of an object: of its own source); None where nobody can tell."""
    vectorised: bool
    given: str | Callable[..., Any]
    """FILE.py:NAME with an absolute path, or the function."""

    @classmethod
    def of(cls, given: str | Callable[..., Any]) -> OwnFunction:
        """The function given.

        Raises:
            UsageError: there is no such file or name, or it cannot be called.
        """
        name, content = "", None
        if isinstance(given, str):
            path, called = user_code.parse(given, WHAT)
            name, content, given = f"{path.name}:{called}", user_code.content_hash(path), f"{path}:{called}"
        function = _function(given, content)
        if not callable(function):
            raise UsageError(f"{name or repr(given)} is no {WHAT}: it cannot be called; give a function of an architecture.")
        if not name:
            named = _defined(function)
            name, content = f"{named.__module__}:{named.__qualname__}", _source_hash(named)
        told = (getattr(each, "vectorised", False) for each in (function, _defined(function)))  # a partial does not pass it on
        return cls(name, content, any(told), given)

    @property
    def path(self) -> Path | None:
        """The file errors are told of."""
        if isinstance(self.given, str):
            return Path(self.given.rpartition(":")[0])
        try:
            found = inspect.getsourcefile(_defined(self.given))
        except TypeError:  # written in C
            return None
        return Path(found) if found else None

    @property
    def identity(self) -> dict[str, str | None]:
        """What a search states of it."""
        return {"name": self.name, "content": self.content}

    def require_known_elsewhere(self) -> None:
        """Raises where other processes could not find it.

        Raises:
            UsageError: it lives in this process only.
        """
        if isinstance(self.given, str):
            return
        here = getattr(self.given, "__module__", None) == "__main__" and not hasattr(sys.modules["__main__"], "__file__")
        try:
            ForkingPickler.dumps(self.given)
        except Exception:  # whatever an object raises when it is not made to be sent
            here = True
        if here:
            raise UsageError(
                f"The {WHAT} {self.name} is known to this process only, and workers are others: write it into a file and give "
                "FILE.py:NAME, leave out workers, or give an executor of threads."
            )


def _function(given: str | Callable[..., Any], content: str | None) -> Any:
    """The function itself."""
    return _loaded(given, content) if isinstance(given, str) else given


@lru_cache(maxsize=None)
def _loaded(reference: str, content: str | None) -> Any:
    """Once per process; a worker that starts later does not take an edited file for the one the search began with."""
    path, _ = user_code.parse(reference, WHAT)
    if user_code.content_hash(path) != content:
        raise UsageError(f"{path} was changed while the search ran; run the search again.")
    return user_code.load(reference, WHAT)


def _defined(function: Any) -> Any:
    """What has a name and a source: the function, the one behind a partial, or an object's class."""
    function = inspect.unwrap(getattr(function, "func", function))
    return function if hasattr(function, "__qualname__") else type(function)


def _source_hash(named: Any) -> str | None:
    try:
        return hashlib.sha256(inspect.getsource(named).encode()).hexdigest()[:16]
    except (OSError, TypeError):
        return None


def evaluate(own: OwnFunction, architectures: Sequence[Mapping[str, Any]]) -> list[Outcome]:
    """What the function says of architectures, in whatever process this runs.

    Raises:
        UsageError: an answer is no number.
    """
    function = _function(own.given, own.content)
    if not own.vectorised:
        return [_outcome(own, function, architecture) for architecture in architectures]
    try:
        answers = function(deepcopy(list(architectures)))  # they are its own to change
    except (Exception, SystemExit) as error:  # whatever a user's code raises; scripts end with sys.exit
        if len(architectures) > 1:
            return [evaluate(own, [architecture])[0] for architecture in architectures]
        return [_reason(own, error)]
    try:
        found = list(answers)
    except TypeError:
        raise UsageError(
            f"{own.name} is vectorised, but answered {_shown(answers)} to {len(architectures)} architectures: it must return a "
            "list of numbers."
        ) from None
    if len(found) != len(architectures):
        raise UsageError(f"{own.name} returned {len(found)} numbers for {len(architectures)} architectures.")
    return [_checked(own, answer, architecture) for answer, architecture in zip(found, architectures, strict=True)]


def _outcome(own: OwnFunction, function: Callable[..., Any], architecture: Mapping[str, Any]) -> Outcome:
    try:
        answer = function(deepcopy(dict(architecture)))  # it is its own to change
    except (Exception, SystemExit) as error:  # whatever a user's code raises; scripts end with sys.exit
        return _reason(own, error)
    return _checked(own, answer, architecture)


def _checked(own: OwnFunction, answer: Any, architecture: Mapping[str, Any]) -> Outcome:
    """The number, or why it is none."""
    single = isinstance(answer, numbers.Real) or (hasattr(answer, "__float__") and getattr(answer, "shape", None) == ())
    if not single or isinstance(answer, bool):
        many = isinstance(answer, list | tuple) or bool(getattr(answer, "shape", ()))
        hint = f" If it takes a list of architectures, say so: {own.name.rpartition(':')[2]}.vectorised = True." if many else ""
        raise UsageError(
            f"{own.name} returned {_shown(answer)} for {dict(architecture)}: it must return a number (where an architecture "
            f"fails: NaN, or an exception).{hint}"
        )
    number = float(answer)
    return number if math.isfinite(number) else f"it returned {number}"


def _reason(own: OwnFunction, error: BaseException) -> str:
    return f"{user_code.place(error, own.path)}: {user_code.summary(error)}"


def _shown(answer: Any) -> str:
    text = " ".join(repr(answer).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
