"""Where data lives: a workspace folder (written) searched first, then the data shipped with hwbench (read only).

Shipped data is evidence, never a cache: `profile` does not count its rows as done.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import hwbench
from hwbench.core.errors import UsageError
from hwbench.core.files import writing


def packaged() -> Path:
    """The shipped data: `hwbench/_data` in an installed wheel, the repository's root in a checkout."""
    here = Path(hwbench.__file__).resolve().parent
    return here / "_data" if (here / "_data").is_dir() else here.parent


@dataclass(frozen=True)
class Workspace:
    """One folder holding devices/, luts/, predictors/, measurements/, reports/ of a user's own."""

    root: Path

    @classmethod
    def at(cls, folder: str | Path) -> Workspace:
        """The workspace in a folder (made on first write)."""
        try:
            root = Path(folder).expanduser().resolve()
            is_file = root.exists() and not root.is_dir()
        except (OSError, RuntimeError) as error:  # no such user, a loop of links, a name that is too long
            raise UsageError(f"Workspace {folder} cannot be reached: {error}; give another folder with --workspace.") from None
        if is_file:
            raise UsageError(f"Workspace {folder} is a file; give a folder with --workspace.")
        return cls(root)

    @property
    def option(self) -> Path | None:
        """For `command`: the folder, unless it is the one where one works, which goes without saying."""
        return None if self.root == Path.cwd().resolve() else self.root

    def path(self, *parts: str) -> Path:
        """Where a file of this workspace is or would be."""
        return self.root.joinpath(*parts)

    def find(self, *parts: str) -> Path | None:
        """The file in the workspace, else the shipped one, else None."""
        for root in (self.root, packaged()):
            if root.joinpath(*parts).exists():
                return root.joinpath(*parts)
        return None

    def each(self, *parts: str, pattern: str) -> list[Path]:
        """Matching files of both places, sorted by name, the workspace's hiding a shipped one of the same name."""
        files: dict[str, Path] = {}
        for root in (packaged(), self.root):
            folder = root.joinpath(*parts)
            files.update({p.relative_to(folder).as_posix(): p for p in folder.glob(pattern)})
        return [files[name] for name in sorted(files)]

    def folder(self, *parts: str) -> Path:
        """A folder of the workspace, made if need be."""
        path = self.root.joinpath(*parts)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        return path
