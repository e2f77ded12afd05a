"""Folders that stand for releases pip would install: this Python's onnxruntime under another version, or one that breaks."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnxruntime

from hwbench.core.files import write_json
from hwbench.device.releases import MANIFEST, release_of


def put_release(version: str, code: str | None = None) -> Path:
    """A release in $HWBENCH_CACHE: the installed onnxruntime, or a package whose import runs that code."""
    release = release_of(f"onnxruntime=={version}")
    assert release is not None
    shutil.rmtree(release.folder, ignore_errors=True)
    (release.folder / f"onnxruntime-{version}.dist-info").mkdir(parents=True)
    (release.folder / f"onnxruntime-{version}.dist-info" / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: onnxruntime\nVersion: {version}\n"
    )
    package = release.folder / "onnxruntime"
    if code is None:
        package.symlink_to(Path(onnxruntime.__file__).parent)
    else:
        package.mkdir()
        (package / "__init__.py").write_text(code)
    write_json(release.folder / MANIFEST, {"made_for": release.wanted, "packages": {"onnxruntime": version}})
    return release.folder
