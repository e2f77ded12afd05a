"""What is here and what is missing: a test per state of a part."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

import hwbench
from hwbench.device import doctor
from hwbench.device.doctor import ESSENTIAL, Part, packages, programs

PROJECT = tomllib.loads((Path(hwbench.__file__).parents[1] / "pyproject.toml").read_text())["project"]
REQUIRED = ["numpy>=2.0", "onnx>=1.18", "torch>=2.13; extra == 'torch'", "hwbench-nas[torch]; extra == 'compress'",
            "transformers>=4.50; extra == 'compress'", "tomli>=2; python_version < '3'"]  # fmt: skip


def installed(**versions):
    def version_of(name):
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    return version_of


def told(parts):
    return {each.name: each for each in parts}


def test_a_package_is_here():
    found = told(packages(REQUIRED, installed(numpy="2.4.6", onnx="1.23.2", torch="2.13.0+cpu")))
    assert found["packages"] == Part("packages", "here", "numpy 2.4.6, onnx 1.23.2", ESSENTIAL)
    assert (found["extra torch"].state, found["extra torch"].get) == ("here", "")


def test_a_package_is_missing():
    found = told(packages(REQUIRED, installed(numpy="2.4.6")))
    assert found["packages"].state == "missing"
    assert found["packages"].found == "lacks onnx"
    assert found["packages"].get == "pip install 'numpy>=2.0' 'onnx>=1.18'"
    assert found["extra compress"] == Part(
        "extra compress", "missing", "lacks transformers", "hwbench compress", "pip install 'hwbench-nas[compress]'"
    )


def test_a_package_is_too_old():
    found = told(packages(REQUIRED, installed(numpy="1.26.4", onnx="1.23.2", torch="2.12.1")))
    assert found["packages"].state == "too old"
    assert found["packages"].found == "numpy 1.26.4, wanted >=2.0"
    assert found["packages"].get.startswith("pip install ")
    assert found["extra torch"].state == "too old"


def test_a_folder_that_was_never_installed_is_broken():
    (part,) = packages([], installed())
    assert (part.state, part.needed_for, part.get) == ("broken", ESSENTIAL, "pip install .")


def test_shipped_data_that_is_gone_is_broken(nothing_packaged, monkeypatch):
    monkeypatch.setattr(doctor, "packaged", lambda: nothing_packaged)
    (part,) = doctor._data()
    assert (part.state, part.needed_for) == ("broken", ESSENTIAL)
    assert part.found.startswith("0 devices, 0 luts, 0 predictors in ")


def test_programs_that_are_missing_say_how_to_get_them(monkeypatch, tmp_path):
    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path))
    parts = told(programs(lambda name: None, lambda library: False))
    assert {each.state for each in parts.values()} == {"missing"}
    assert all(each.get for each in parts.values())
    assert parts["qemu cortex-a72"].get == "hwbench device setup emulated-cortex-a72"
    assert parts["ssh"].get == "sudo apt install openssh-client"
    assert parts["OpenMP"].get.endswith(" -m hwbench.core.openmp")


def test_programs_that_are_here_say_where():
    parts = told(programs(lambda name: f"/bin/{name}", lambda library: True))
    assert parts["C compiler"] == Part("C compiler", "here", "/bin/cc", parts["C compiler"].needed_for)
    assert parts["Chromium"].found == "/bin/chromium"
    assert all(not each.get for each in parts.values() if each.state == "here")


def test_what_was_unpacked_counts_as_here(monkeypatch, tmp_path):
    from hwbench.core import debian
    from hwbench.core.files import write_json

    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path))
    folder = tmp_path / "unpacked" / "gcc"
    folder.mkdir(parents=True)
    write_json(folder / debian.MANIFEST, {"made_for": debian._made_for(debian.GCC), "packages": {}})
    parts = told(programs(lambda name: None, lambda library: False))
    assert (parts["C compiler"].state, parts["C compiler"].found) == ("here", str(folder))


def test_every_extra_says_what_it_is_for_and_is_asked_for_by_the_project():
    assert {*doctor.EXTRAS} == {*PROJECT["optional-dependencies"]}


def test_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("HWBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "unpacked" / "one").mkdir(parents=True)
    (tmp_path / "cache" / "unpacked" / "one" / "file").write_bytes(b"12345")
    (tmp_path / "cache" / "unpacked" / "one" / "loop").symlink_to(tmp_path)
    found = hwbench.doctor(tmp_path)
    assert found.works
    assert found.version == hwbench.__version__
    assert found.cache_bytes == {"unpacked/one": 5 + (tmp_path / "cache/unpacked/one/loop").lstat().st_size}
    assert found.known.endswith("writes one")
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / f"{found.device}.toml").touch()
    assert hwbench.doctor(tmp_path).known == str(tmp_path / "devices" / f"{found.device}.toml")


@pytest.mark.parametrize("gone", [(), ("numpy", "onnx", "pandas", "scipy")])
def test_it_imports_none_of_the_packages_it_tells_of(python, tmp_path, gone):
    """Where they are missing, it is what tells so."""
    done = python(
        "import sys\n"
        "for name in sys.argv[1:]: sys.modules[name] = None\n"
        "import hwbench\n"
        "found = hwbench.doctor()\n"
        "heavy = {'numpy', 'torch', 'pandas', 'scipy', 'onnx', 'onnxruntime', 'pyarrow', 'lightgbm', 'ray'} - {*sys.argv[1:]}\n"
        "assert not heavy & {*sys.modules}, heavy & {*sys.modules}\n"
        "assert len(found.parts) > 15\n",
        *gone,
    )
    assert done.returncode == 0, done.stderr
