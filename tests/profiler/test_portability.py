"""What runs on a device needs little there: Python 3.9, the standard library, numpy and the runtime."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import hwbench

HELLO = {"ask": "hello", "runtime": "onnxruntime", "class": "hwbench.runtime.onnxruntime:Onnxruntime", "arguments": {}}
PACKAGE = Path(hwbench.__file__).parent


def test_engine_and_runtime_import_only_the_standard_library_numpy_and_their_runtime(python):
    done = python(
        "import sys\n"
        "import hwbench.device.agent.worker, hwbench.profiler.host, hwbench.runtime.onnxruntime\n"
        "import onnxruntime\n"
        "ours = {'pandas', 'pyarrow', 'onnx', 'psutil', 'scipy', 'rich', 'typer', 'filelock', 'jinja2', 'matplotlib'}\n"
        "print(sorted(ours & set(sys.modules)))\n"
    )
    assert done.stdout == "[]\n", done.stderr


def test_a_worker_runs_with_nothing_else_installed(python):
    """Whatever is not the standard library, numpy or onnxruntime cannot be imported here, and need not be."""
    done = python(
        "import sys\n"
        "for name in ('pandas', 'pyarrow', 'onnx', 'psutil', 'scipy', 'rich', 'typer', 'filelock', 'tomli_w'):\n"
        "    sys.modules[name] = None\n"
        "from hwbench.device.agent.worker import Worker\n"
        "print(Worker().answer(" + repr(HELLO) + ")['status'])\n"
    )
    assert done.stdout == "ok\n", done.stderr


PORTABLE = sorted([*(PACKAGE / "device" / "agent").glob("*.py"), *(PACKAGE / "runtime").glob("*.py")])


@pytest.mark.parametrize("path", PORTABLE, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_what_runs_on_a_device_is_python_3_9(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    later = [
        node.lineno for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg in ("strict", "slots", "kw_only")
    ]
    assert later == []
    annotated = any(isinstance(node, ast.AnnAssign | ast.arg) for node in ast.walk(tree))
    assert not annotated or "from __future__ import annotations" in path.read_text()


def test_the_package_itself_is_light(python):
    done = python("import hwbench, sys; print(sorted({'numpy', 'onnxruntime', 'pandas', 'pyarrow'} & set(sys.modules)))")
    assert done.stdout == "[]\n", done.stderr
