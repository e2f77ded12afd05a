"""Runtimes and transports of other packages: a module that is one portable file goes with the agent, a device file may name
any transport that is registered, and what cannot be sent is said in one line."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from io import BytesIO

import pytest
import tomli_w

from hwbench.core import registry
from hwbench.core.errors import DataError
from hwbench.device import files
from hwbench.device.agent import bundle
from hwbench.device.agent.message import decode, encode
from hwbench.device.transport.base import WorkerLost, agent, for_device

PORTABLE = """
import json
import numpy as np
from hwbench.runtime.base import random_inputs


class Elsewhere:
    def __init__(self, factor: int = 1):
        self.factor = factor

    def version(self):
        return "1.0"

    def executes_on(self):
        return "cpu"

    def convert(self, path, setting, shapes):
        return path

    def load(self, path, setting, high, shapes):
        raise ValueError("nothing is loaded here")
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes modules of a package elsewhere: package(name=source)."""
    folder = tmp_path / "site" / "elsewhere_parts"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(folder.parent))

    def write(**modules: str) -> None:
        for name, source in modules.items():
            (folder / f"{name}.py").write_text(source)

    yield write
    registry._given.clear()
    registry._given_shared.clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "elsewhere_parts"]:
        del sys.modules[name]


def test_a_runtime_from_elsewhere_goes_with_the_agent_and_answers_there(package, tmp_path):
    package(runtime=PORTABLE)
    content, digest = bundle.build("elsewhere_parts.runtime")
    assert bundle.build("elsewhere_parts.runtime") == (content, digest)
    assert digest != bundle.build()[1] == bundle.build("hwbench.runtime.onnxruntime")[1]
    with zipfile.ZipFile(BytesIO(content)) as archive:
        assert archive.read("elsewhere_parts/runtime.py").decode() == PORTABLE
        assert archive.read("elsewhere_parts/__init__.py") == b""
    (tmp_path / "agent.pyz").write_bytes(content)
    hello = {"ask": "hello", "runtime": "mine", "class": "elsewhere_parts.runtime:Elsewhere", "arguments": {"factor": 3}}
    command = [sys.executable, "-I", str(tmp_path / "agent.pyz")]  # -I: nothing of ours is on its path
    done = subprocess.run(command, input=encode(hello), capture_output=True, timeout=300, check=True)
    answer = decode(done.stdout)
    assert (answer["status"], answer["environment"]["runtime"], answer["environment"]["runtime_version"]) == (
        "ok",
        "mine",
        "1.0",
    )


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import pandas, json", "imports pandas at its top; a runtime that is sent to a device may import"),
        ("from hwbench.core import registry", "imports hwbench.core at its top"),
        ("from . import helper", "imports . at its top"),
        ("def load():\n    from .helper import x", "imports .helper at its top"),
        ("match 3:\n    case 3: ...", "is not Python 3.9, line 2: Pattern matching"),
    ],
)
def test_a_module_that_is_not_portable_is_refused_by_what_it_needs(package, source, said):
    package(heavy=source)
    with pytest.raises(ValueError, match=r"elsewhere_parts/heavy\.py ") as refused:
        bundle.build("elsewhere_parts.heavy")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_package_and_what_is_no_file_cannot_be_sent(package):
    package()
    with pytest.raises(ValueError, match=r"elsewhere_parts is a package .*, and only a single file can be sent"):
        bundle.build("elsewhere_parts")
    with pytest.raises(ValueError, match="itertools is no Python file, and only a file can be sent"):
        bundle.build("itertools")


def test_a_transport_says_which_runtime_it_cannot_send(package):
    package(heavy="import pandas\n" + PORTABLE)
    from elsewhere_parts.heavy import Elsewhere

    name = registry.named("runtime", Elsewhere)
    with pytest.raises(WorkerLost, match=rf"runtime '{name}' cannot be sent there: .*heavy.py imports pandas at its top"):
        agent(name)


class Pigeon:
    """A transport that remembers what it was made with."""

    name = "pigeon-post"
    shares_files = True

    def __init__(self, device, runtime):
        self.device, self.runtime = device, runtime

    def start(self): ...

    def ending(self, code): ...

    def environment(self): ...


def described(path, **changes):
    document = {
        "schema": 1, "name": "loft", "kind": "x86", "reach": "pigeon-post", "detected_on": "2026-01-01",
        "cpu": {"model": "any", "signature": "any", "isa": [], "cores": 1},
        "memory": {"total_bytes": 1, "caches_bytes": {}}, "peaks": {}, "pigeon-post": {"pigeons": 3}, **changes,
    }  # fmt: skip
    path.write_text(tomli_w.dumps(document))
    return path


def test_a_device_file_may_name_a_transport_of_another_package(tmp_path, monkeypatch):
    monkeypatch.setitem(registry._targets("transport"), "pigeon_post", lambda: Pigeon)
    found = files.read(described(tmp_path / "loft.toml"))
    assert (found.reach, found.section, found.unreachable) == ("pigeon_post", {"pigeons": 3}, None)
    made = for_device(found, "onnxruntime")
    assert isinstance(made, Pigeon)
    assert (made.device.section, made.runtime) == ({"pigeons": 3}, "onnxruntime")
    plain = files.read(described(tmp_path / "plain.toml", reach="pigeon_post"))
    assert plain.reach == "pigeon_post"


def test_a_transport_nobody_registered_is_answered_with_those_there_are(tmp_path):
    with pytest.raises(DataError) as error:
        files.read(described(tmp_path / "loft.toml"))
    assert str(error.value).endswith("loft.toml: reach 'pigeon-post' is unknown; available: emulated, local, ssh, none.")
