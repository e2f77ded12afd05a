"""A stranger's package, installed by pip: its parts are listed, keep their contracts and are used in one flow; its broken twin
fails every suite with a message that names the mistake.

Slow (half a minute): nine suites run twice, and a whole flow is measured over their runtime and transport.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tomllib
import zipfile
from itertools import product
from pathlib import Path

import pytest

import hwbench

ROOT = Path(hwbench.__file__).parents[1]
PARTS = Path(__file__).parents[1] / "assets" / "outside-parts"
KINDS = ("op", "space", "runtime", "transport", "aggregator", "strategy", "objective", "proxy", "benchmark")
MISTAKES = {
    "op": ("declared work is what the model computes", "op broken_clip, work: broken_clip(dim=6,tokens=6): declared 36 macs"),
    "space": ("an architecture survives being written as values", "space broken-mlp, genes: "),
    "runtime": (
        "it computes what onnxruntime computes",
        "runtime broken-onnx, load: linear(in=6,out=4,tokens=5): outputs differ",
    ),
    "transport": ("an end is explained", "transport broken-pipe, ending: expected (one of crashed"),
    "aggregator": ("an op it does not know is nan", "aggregator broken-scale, op_ms: expected NaN for tanh(dim=12345)"),
    "strategy": ("architectures are canonical", "strategy broken-walk, ask: expected only architectures not asked for before"),
    "objective": (
        "at equal accuracy the cheaper never stands behind",
        "objective broken-thrift, told: expected the lower latency_ms first",
    ),
    "proxy": (
        "a score does not depend on the others",
        "proxy broken-macs, compile: expected the same score for a network alone",
    ),
    "benchmark": (
        "rows are architectures of the genes each once",
        "benchmark broken-table, read: expected every architecture once, found 79 different ones in 80 rows",
    ),
}
"""Kind -> the check that fails, and how its reason begins."""


def wheel(source: Path, folder: Path) -> Path:
    """The wheel a build tool would make: packages and entry points, as pyproject.toml says."""
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    about = f"{stem}.dist-info"
    groups = project["entry-points"].items()
    points = "\n".join(f"[{g}]\n" + "\n".join(f"{n} = {v}" for n, v in entries.items()) for g, entries in groups)
    members = {str(path.relative_to(source)): path.read_text() for path in sorted(source.glob("*/*.py"))}
    members |= {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": points + "\n",
    }
    members[f"{about}/RECORD"] = "".join(f"{name},,\n" for name in [*members, f"{about}/RECORD"])
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Where pip put both packages."""
    folder = tmp_path_factory.mktemp("wheels")
    wheels = [str(wheel(PARTS / name, folder)) for name in ("good", "broken")]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run([*pip, "--target", str(target), *wheels], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Path:
    """Eighty networks."""
    folder = tmp_path_factory.mktemp("tables")
    (folder / "their").mkdir()
    with (folder / "their" / "networks.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["depth", "width", "heads", "top1", "red_ms", "blue_ms"])
        for d, w, h in product(range(5), range(4), range(4)):
            writer.writerow(
                [d, w, h, 60 + 4 * d + 3 * w + h - 0.3 * d * w, 1 + d + 0.5 * w * w + 0.1 * h, 2 + 0.5 * d + w + 0.3 * h]
            )
    return folder


def run(site: Path, code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, which finds hwbench and their packages."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(site)])}
    command = [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=env, cwd=site, capture_output=True, text=True, timeout=300, check=False)


VERBS = """
import json, sys
from typer.testing import CliRunner
from hwbench.cli.main import build
app = build()
print(json.dumps([(done.exit_code, done.stdout, repr(done.exception)) for done in
                  (CliRunner().invoke(app, arguments) for arguments in json.loads(sys.argv[1]))]))
"""


def verbs(site: Path, *commands: list[str]) -> list[tuple[int, str, str]]:
    """(exit code, standard output, exception) of each command."""
    done = run(site, VERBS, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    return [tuple(each) for each in json.loads(done.stdout)]


def paths(package: str) -> dict[str, tuple[str, str]]:
    """Kind -> (name, module:Class)."""
    groups = tomllib.loads((PARTS / package / "pyproject.toml").read_text())["project"]["entry-points"]
    return {group.removeprefix("hwbench."): next(iter(entries.items())) for group, entries in groups.items()}


def test_the_packages_hold_one_part_of_each_kind():
    assert set(paths("good")) == set(paths("broken")) == set(KINDS)


def test_their_parts_are_listed(site):
    found = verbs(site, *(["list", kind, "--json"] for kind in KINDS))
    for kind, (code, out, error) in zip(KINDS, found, strict=True):
        assert code == 0, error
        names = {row["name"] for row in json.loads(out.splitlines()[-1])}
        assert {paths(package)[kind][0] for package in ("good", "broken")} <= names


def where(kind: str, tables: Path) -> list[str]:
    """The option that only checks of benchmarks read."""
    return ["--tables", str(tables)] if kind == "benchmark" else []


def test_their_parts_pass_by_name_and_by_class(site, tables):
    asked = [["check-part", paths("good")[kind][1], *where(kind, tables), "--json"] for kind in KINDS]
    asked += [["check-part", paths("good")["objective"][0]]]
    for (code, out, error), command in zip(verbs(site, *asked), asked, strict=True):
        assert code == 0, (command, out, error)
    assert "objective their-thrift: 9 of 9 checks kept, 0 failed." in out


def test_their_broken_twins_fail_with_the_mistake_named(site, tables):
    asked = [["check-part", paths("broken")[kind][1], *where(kind, tables), "--json"] for kind in KINDS]
    for kind, (code, out, error) in zip(KINDS, verbs(site, *asked), strict=True):
        assert code == 1, (kind, out, error)
        document = json.loads(out.splitlines()[-1])
        assert document["kind"] == kind
        failed = {row["check"]: row["reason"] for row in document["checks"] if row["status"] == "failed"}
        check, reason = MISTAKES[kind]
        assert failed[check].startswith(reason), failed


FLOW = """
import json, sys
from pathlib import Path
import hwbench
from hwbench.profiler.policy import Policy

root, tables = map(Path, sys.argv[1:3])
policy = Policy(rounds=1, burst_ms=0.5, burst_readings=1, reading_ms=0.1, warmup_ms=0.1, warmup_limit_ms=0.1, canary_ms=0.1,
                min_processes=2, max_processes=2, precision=1.0)
there = {"device": "their-board", "runtime": "their_onnx", "workspace": root}
done = hwbench.profile("their_mlp", policy=policy, **there)
fitted = hwbench.fit("their-mlp", predictor="their_scale", networks=6, holdout=6, policy=policy, **there)
found = hwbench.search("their-mlp", 1000.0, root / "out", strategy="their-walk:rate=0.3", objective="their-thrift",
                       proxy="their-macs", evaluations=20, uncertified=True, **there)["search"]
again = hwbench.search("their_mlp", 1000.0, root / "out", strategy="their_walk:rate=0.3", objective="their_thrift",
                       proxy="their_macs", evaluations=20, uncertified=True, **there)["search"]
verified = hwbench.verify(root / "out", random=2, workspace=root, policy=policy)
report = hwbench.report(root / "out", workspace=root)
judged = hwbench.validate("their-table", "red", ["their-walk", "random"], seeds=2, evaluations=50, tables=tables,
                          out=root / "validation", settings=["paid"])
print(json.dumps({
    "failed": dict(done.failed), "path": str(done.path), "environment": dict(fitted.card.environment),
    "predictor": fitted.card.predictor, "features": fitted.card.features, "evaluated": found["evaluated"],
    "same": again["finalists"] == found["finalists"], "measured": verified["measured"], "kept": verified["kept"],
    "arrays": [p.state()[1]["scale"].tolist() for p in fitted.predictors.values()],
    "judged": sorted(judged["strategies"]), "failures": judged["failed"],
}))
"""


def test_their_parts_are_used_in_one_flow(site, tables, tmp_path):
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "their-board.toml").write_text(
        'schema = 1\nname = "their-board"\nkind = "x86"\nreach = "their-pipe"\ndetected_on = "2026-01-01"\npeaks = {}\n'
        'cpu = { model = "any", signature = "any", isa = [], cores = 1 }\n'
        'memory = { total_bytes = 1, caches_bytes = {} }\n[their-pipe]\ncolour = "green"\n'
    )
    done = run(site, FLOW, tmp_path, tables)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["failed"] == {}
    assert told["path"].endswith("luts/their-board/their-onnx.parquet")
    assert (told["environment"]["pipe"], told["environment"]["runtime"]) == ("green", "their-onnx")
    assert told["environment"]["runtime_version"].endswith(" plain")
    assert (told["predictor"], told["features"], told["evaluated"]) == ("their-scale", ["ops"], 20)
    assert told["same"]
    assert told["measured"]
    assert told["kept"]["winner"]
    assert (told["judged"], told["failures"]) == (["random", "their-walk"], [])
    text = (tmp_path / "out" / "report.md").read_text()
    assert all(word in text for word in ("their-mlp", "their-walk", "their-board"))
