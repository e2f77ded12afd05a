"""Every study runs from its command line to its report, on real data at a tiny scale; no figure of it decides anything."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import public_tables
import pytest
from threadpoolctl import threadpool_limits

import hwbench
from hwbench.space import export, sample
from studies import provenance
from studies.__main__ import every
from studies.harness import TRIAL
from studies.options import BRIEF
from studies.table_claims import CELLS
from tests import campaign, setups

TABLES = Path(os.environ.get("HWBENCH_TABLES", provenance.ROOT.parent / "shared" / "tables"))
STUDIES = every()
STAGES = ("whole", "predicted", "dear")
TINY_CLAIMS = ("best-of-n nasbench-bert", "linas nasbench-bert flops_m", "hurdles nasbench-nlp", "strategies vitbench-pit")


def run(name: str, out: Path, *words: object) -> str:
    """A trial run's report; every table in it is whole."""
    with threadpool_limits(1):  # threads of small products that wait for each other take many times as long
        assert STUDIES[name].main(["--tiny", "--out", str(out), *map(str, words)]) == 0
    text = (out / f"{name}.md").read_text()
    assert text.startswith(f"# {STUDIES[name].title}\n")
    assert TRIAL in text
    for block in text.split("\n\n"):
        if block.startswith("|"):
            assert len({line.count(" | ") for line in block.strip().splitlines()}) == 1, block
            assert len(block.strip().splitlines()) > 2, block
    return text


def tables_of(*folders: str) -> Path:
    """Where the public tables are."""
    for folder in folders:
        if not (TABLES / folder).is_dir():
            pytest.skip(f"needs the public tables ({folder} of {TABLES}); set HWBENCH_TABLES")
    return TABLES


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path_factory):
    """What a study forgets to write to its own folder would land here, not in the repository."""
    there = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(there)
    monkeypatch.setenv("PYTHONPATH", str(provenance.ROOT))  # for what studies run in processes of their own
    yield
    assert list(there.iterdir()) == []


@pytest.fixture(scope="module")
def workspace(tiny_workspace, tmp_path_factory) -> Path:
    """AutoFormer-tiny's table with a calibrated sum, whatever the additivity test would say of so short measurements."""
    root = tmp_path_factory.mktemp("studies") / "workspace"
    shutil.copytree(tiny_workspace, root)
    hwbench.fit("autoformer-tiny", workspace=root, networks=4, holdout=4, predictor="calibrated_sum", policy=BRIEF)
    return root


def test_every_study_is_listed_with_what_it_is_and_how_long_it_takes():
    assert set(STUDIES) == {
        "accuracy", "active_profiling", "block_search", "campaign", "changing_sizes", "compress", "equal_work", "exact_oracle",
        "gpu_operators", "hat", "kernel_errors", "kernel_spaces", "machine_noise", "many_machines", "mutants", "objectives",
        "own_benchmark", "peak_memory", "proxies", "pruning", "reading_speed", "readme_figures", "real_models", "releases",
        "search", "spaces", "t_razor_search", "table_claims", "targets", "threads_and_batch", "transfer", "trust",
    }  # fmt: skip
    for name, study in STUDIES.items():
        assert study.name == name
        assert study.takes
        assert len(study.title) < 128


OWN_PARSER = ("harness.py", "options.py", "stored.py", "bare_machine.py", "outside.py", "lowest.py")
"""The last three run before anything is installed."""


def test_studies_import_nothing_from_tests():
    for path in (provenance.ROOT / "studies").glob("*.py"):
        text = path.read_text()
        assert "from tests" not in text, path
        assert "import argparse" not in text or "ArgumentParser(" not in text or path.name in OWN_PARSER, path


@pytest.mark.campaign
@pytest.mark.slow  # kills and disturbs every verb
def test_campaign(tmp_path):
    text = run("campaign", tmp_path)
    assert "tries; lost 0, doubled 0, " in text
    assert "| profile |" in text


@pytest.mark.campaign
@pytest.mark.slow  # starts two clusters
def test_many_machines(tmp_path):
    pytest.importorskip("ray", reason="ray is not installed")
    text = run("many_machines", tmp_path)
    assert "trials.jsonl the same" in text
    assert "ANOTHER" not in text
    assert "| ray |" in text


@pytest.mark.campaign
def test_mutants(tmp_path):
    assert "| core/stats | 3 |" in run("mutants", tmp_path, "--stage", "core/stats")


@pytest.mark.campaign
def test_reading_speed(tmp_path):
    text = run("reading_speed", tmp_path)
    assert "| predictor |" in text
    assert "without checksums" in text


def test_machine_noise(tmp_path):
    assert "| 30 | level |" in run("machine_noise", tmp_path).replace("30.0", "30")


@pytest.mark.campaign
def test_peak_memory(tmp_path):
    assert "1 architectures: mean error" in run("peak_memory", tmp_path)


@pytest.mark.campaign
@pytest.mark.slow  # installs two releases, exports a model
def test_releases(tmp_path):
    text = run("releases", tmp_path)
    assert "| levit-128s | 1.31.1 |" in text
    assert "onnxruntime==1.31.1 against onnxruntime==1.25.1" in text


@pytest.mark.campaign
@pytest.mark.slow  # exports a model
def test_changing_sizes(tmp_path):
    text = run("changing_sizes", tmp_path)
    assert "changing / staying" in text
    assert (tmp_path / "sweep" / "measure.svg").exists()


@pytest.mark.campaign
@pytest.mark.slow  # networks of a space, at three settings
def test_threads_and_batch(tmp_path):
    assert "| two threads | nasbench201 | 19 | 4 |" in run("threads_and_batch", tmp_path)


@pytest.mark.campaign  # its parts: test_compress_study.py, tests/study/test_compress.py
@pytest.mark.slow
def test_compress(tmp_path):
    """Every stage, on a tiny encoder with random weights and on sentences of a few words: two of them need seconds each."""
    pytest.importorskip("transformers")
    from tests.accuracy.supernet.bert import encoders

    words = ["--model", encoders.written(tmp_path / "model"), "--datasets", encoders.datasets(tmp_path / "datasets")]
    out = tmp_path / "out"
    text = run("compress", out, *words, "--task", "sst2", "--epochs", 1, "--supernet-epochs", 1)
    assert "Not run" not in text
    assert "equal bit for bit to never killed: yes" in text


def test_hat(tmp_path):
    text = run("hat", tmp_path, "--tables", tables_of("hat"), "--stage", "wmt14enfr-raspberrypi4_arm_cortex_a72")
    assert "| wmt14enfr | raspberrypi4_arm_cortex_a72 | 0.6 |" in text


@pytest.mark.campaign
@pytest.mark.slow  # a generation is left out and fitted anew
def test_gpu_operators(tmp_path):
    stages = ("--stage", "data", "--stage", "turing")
    text = run("gpu_operators", tmp_path, "--tables", tables_of("neusight", "aiconfigurator"), *stages)
    assert "| nvidia-tesla-t4 | train | linear |" in text


@pytest.mark.campaign
@pytest.mark.slow  # every pair of a table's devices, several times
def test_transfer(tmp_path):
    text = run("transfer", tmp_path, "--tables", tables_of("help", "oneproxy", "nasbench201"))
    assert "oneproxy, other collection, 10 random" in text


@pytest.mark.campaign(always=True)
def test_search(tmp_path):
    words = [word for stage in (STAGES if campaign.RUNNING else STAGES[:1]) for word in ("--stage", stage)]
    text = run("search", tmp_path, "--tables", tables_of("nasbench201", "help"), "--workers", 1, *words)
    assert "| default | paid |" in text
    assert ("| optuna-tpe | paid |" in text) == campaign.RUNNING  # of the last stage
    assert (tmp_path / "whole" / "report.md").exists()


def test_table_claims(tmp_path):
    """On the tables written here; NAS-Bench-201 and Penn Treebank need the public ones."""
    words = [word for stage in TINY_CLAIMS for word in ("--stage", stage)]
    text = run("table_claims", tmp_path, "--tables", public_tables.folder(), *words)
    for claim in ("Claim 19", "Claim 23", "Claim 25", "Strategies on tables that hold a sample"):
        assert f"## {claim}" in text
    assert "| linas-ridge |" in text
    assert (tmp_path / "strategies" / "vitbench-pit" / "report.md").exists()


def test_table_claims_on_cells(tmp_path):
    words = [word for stage in ("zero-reward 2080ti_1", f"hurdles {CELLS}") for word in ("--stage", stage)]
    text = run("table_claims", tmp_path, "--tables", tables_of("nasbench201", "help", "oneproxy"), *words)
    assert "| 2080ti_1 | 5 | reinforce | zeroed |" in text


def test_block_search(tmp_path):
    text = run("block_search", tmp_path, "--stage", "params")
    assert "| block-evolution-random | " in text
    assert "The proven best is 5" in text


@pytest.mark.campaign
@pytest.mark.slow  # networks are measured after every choice
def test_active_profiling(workspace, tmp_path):
    assert "| space-filling |" in run(
        "active_profiling", tmp_path, "--workspace", workspace, "--space", "autoformer-tiny", "--networks", 4
    )


@pytest.mark.campaign
@pytest.mark.slow  # a search by every objective, whose winners are measured
def test_objectives(workspace, tmp_path):
    text = run("objectives", tmp_path, "--workspace", workspace, "--measure")
    assert "ProxylessNAS latency loss" in text
    assert (tmp_path / "evolution-50" / "search.json").exists()


@pytest.mark.campaign
@pytest.mark.slow  # searches by several strategies on two large spaces
def test_exact_oracle(tmp_path):
    pytest.importorskip("torch", reason="needs torch: pip install 'hwbench-nas[torch]'")
    text = run("exact_oracle", tmp_path)
    assert "60 architectures paid for, 60 of them within the limit, 0 asked for beyond it" in text
    assert text.count("| nasbench201 |") == 1
    assert "block scores of 30 networks, averaged, make the table" in text


@pytest.mark.campaign
@pytest.mark.slow  # two spaces are profiled, and networks of both measured
def test_spaces(workspace, tmp_path):
    place = Path(shutil.copytree(workspace, tmp_path / "workspace"))
    text = run("spaces", tmp_path / "out", "--workspace", place, "--space", "autoformer-tiny", "--space", "nasbench201")
    assert text.count("| same, ") == 2
    assert "19 rows profiled" in text


@pytest.mark.campaign
@pytest.mark.slow  # four spaces are profiled, fitted and held against torch
def test_readme_figures(tmp_path):
    text = run("readme_figures", tmp_path, "--stage", "prediction", "--stage", "exports")
    assert "| nasbench201 (3) | second measurement |" in text
    assert "| torchscript |" in text
    code = STUDIES["readme_figures"].main(["--tiny", "--out", str(tmp_path), "--stage", "budgets"])
    assert code in (0, 1)  # measured so briefly, a certified bound may keep no budget at all


@pytest.mark.campaign
@pytest.mark.slow  # three searches, each of which checks its shortcut on 48 networks
def test_t_razor_search(workspace, tmp_path):
    text = run("t_razor_search", tmp_path, "--workspace", workspace)
    assert "| block-evolution-random | 60 |" in text
    assert (tmp_path / "random" / "verification.json").exists()


@pytest.mark.campaign
@pytest.mark.slow  # about 470 kernels and 22 networks are measured, each in a process or more
def test_accuracy(tmp_path):
    for name, values in zip(("mobilenet-v2", "levit-128s"), sample.sample("nasbench201", 2, 5).values, strict=True):
        path = tmp_path / "workspace" / "models" / f"{name}.onnx"  # in place of what `transformers` would export
        path.parent.mkdir(parents=True, exist_ok=True)
        export.export("nasbench201", values, path)
    assert "| mobilenet-v2 |" in run("accuracy", tmp_path)


@pytest.mark.campaign
@pytest.mark.slow  # whole tables are profiled seven times
def test_trust(tmp_path):
    text = run("trust", tmp_path)
    for title in ("Two tables, ", "Beside a process", "measure A B", "Tools on one block", "int8 against fp32", "Cost"):
        assert f"## {title}" in text


@pytest.mark.campaign
@pytest.mark.slow  # 19 blocks are counted twice under emulation
def test_targets(tmp_path):
    setups.emulator("x86-64")
    text = run("targets", tmp_path)
    assert "| openvino" in text
    assert "winner for" in text
