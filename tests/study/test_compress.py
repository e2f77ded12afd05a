"""A tiny encoder cut to a budget from end to end: what is written, what of it repeats, and one line for bad input.

Nothing measured decides anything here: the budget is one that every subnet keeps, or none.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from typer.testing import CliRunner

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import hwbench  # noqa: E402
from hwbench.accuracy.supernet.bert import cutting  # noqa: E402
from hwbench.core.errors import DataError, HwbenchError, UsageError  # noqa: E402
from hwbench.network.op.base import op_of  # noqa: E402
from hwbench.optimize.cost import op_cost  # noqa: E402
from hwbench.optimize.errors import InfeasibleBudget  # noqa: E402
from hwbench.space.encoder import EncoderSpace  # noqa: E402
from hwbench.study import cut_subnets  # noqa: E402
from hwbench.study.compress import Effort  # noqa: E402
from tests.accuracy.supernet.bert import encoders  # noqa: E402

ANY = "1000000x"
"""A budget that every subnet keeps, and every bound of what was measured on a disturbed machine."""


class Killed(BaseException):
    """What stands in for a kill: no Exception, which an accuracy may raise."""


@pytest.fixture(scope="module")
def job(fast_policy, tmp_path_factory):
    """What every run shares: model, sentences, workspace, and little of everything."""
    root = tmp_path_factory.mktemp("compress")
    files = {name: encoders.tsv(root / f"{name}.tsv", n, n) for name, n in (("train", 96), ("dev", 40), ("test", 30))}
    quick = replace(fast_policy, min_processes=1, max_processes=1, wait_ms=0.0)
    effort = Effort(2, 1, 14, 2, quick, quick, quick)
    where = {"workspace": root / "workspace", "space_cost": "macs_m"}
    return {"model": encoders.written(root / "model"), **files, **where, "effort": effort}


@pytest.fixture(scope="module")
def done(job, tmp_path_factory):
    """(folder, document) of a run that nobody stopped."""
    out = tmp_path_factory.mktemp("done") / "cut"
    return out, hwbench.compress(**job, out=out, budget=ANY)


def logits(path, ids, mask):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(["logits"], {"input_ids": ids, "attention_mask": mask})[0]


def test_what_is_written_runs_with_its_own_tokenizer_and_is_as_accurate_as_stated(job, done):
    out, document = done
    stored = json.loads((out / "compress.json").read_text())
    assert stored.pop("sha256")
    assert stored == json.loads(json.dumps(document))
    assert document["labels"] == ["bad", "good"]
    read = transformers.AutoTokenizer.from_pretrained(out / document["tokenizer"], local_files_only=True)
    assert 1 <= len(document["subnets"]) <= 2
    for name in ("dev", "test"):
        rows = [line.split("\t") for line in job[name].read_text().splitlines()[1:]]
        told = read([text for text, _ in rows], padding=True, return_tensors="np")
        for each in (document["full"], *document["subnets"]):
            answers = logits(out / each["files"]["fp32"], told["input_ids"], told["attention_mask"]).argmax(1)
            right = [document["labels"][answer] == label for answer, (_, label) in zip(answers, rows, strict=True)]
            assert each["accuracy"]["fp32"][name] == pytest.approx(100 * np.mean(right))
            assert logits(out / each["files"]["int8"], told["input_ids"], told["attention_mask"]).shape == (len(rows), 2)
    found = document["subnets"][0]
    assert found["architecture"].keys() == {"depth", "heads", "hidden"}
    assert found["differs_by"] <= 1e-5
    assert found["latency_ms"]["upper"] >= found["latency_ms"]["predicted"] > 0
    full, budget = document["full"]["latency_ms"], document["budget"]
    assert full["upper"] >= full["predicted"] == pytest.approx(budget["ms"] / budget["factor"], rel=1e-3)
    for form in ("fp32", "int8"):
        assert full["measured"][form]["min"] > 0
        assert found["latency_ms"]["measured"][form]["min"] > 0
        assert found["latency_ms"]["measured"][form]["of_full"]["ratio"] > 0


def test_a_program_that_knows_compress_json_alone_finds_the_accuracies_stated(job, done):
    """One sentence at a time, where we judge batches: in int8 a rounding may fall the other way, of one sentence in thirty."""
    out, document = done
    words = [Path(__file__).with_name("consumer.py"), out / "compress.json", *(f"{n}={job[n]}" for n in ("dev", "test"))]
    told = subprocess.run([sys.executable, *map(str, words)], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout.splitlines()[-1])
    assert list(found) == ["full", *(each["name"] for each in document["subnets"])]
    for each in (document["full"], *document["subnets"]):
        assert found[each["name"]].keys() == each["accuracy"].keys() == {"fp32", "int8"}
        assert found[each["name"]]["fp32"] == pytest.approx(each["accuracy"]["fp32"])
        assert found[each["name"]]["int8"] == pytest.approx(each["accuracy"]["int8"], abs=100 / 30 + 1e-9)


def test_latencies_that_a_disturbed_machine_told_are_named():
    def network(name, **verdicts):
        return {"name": name, "latency_ms": {"measured": {form: {"verdict": word} for form, word in verdicts.items()}}}

    quiet = network("full", fp32="stable", int8="stable")
    assert cut_subnets.doubtful([quiet], "compress.json") == []
    (told,) = cut_subnets.doubtful([quiet, network("subnet-0", fp32="noisy", int8="noisy")], "compress.json")
    assert told.startswith("Measured latencies are noisy, the machine being disturbed: subnet-0 fp32, subnet-0 int8. ")
    assert "remove compress.json and run the same command again" in told


def test_the_space_has_the_full_encoder_and_every_subnet_found(done):
    out, document = done
    stored = json.loads((out / "space.json").read_text())
    space = EncoderSpace.of(stored["space"])
    assert space.name == document["space"]
    assert stored["anchors"][-1]["widths"] == {"heads": [4, 4], "hidden": [64, 64]}
    for each in document["subnets"]:
        for name in ("heads", "hidden"):
            for layer, value in enumerate(each["architecture"][name]):
                assert value in stored["space"][name][layer]


def test_the_report_has_every_network_and_the_picture(done):
    out, document = done
    text = (out / "compress.md").read_text()
    for each in (document["full"], *document["subnets"]):
        assert text.count(f"| {each['name']} |") >= 2
    assert "front.svg" in text
    assert (out / "front.svg").read_text().startswith("<svg")


def test_stopped_while_it_searches_it_ends_where_it_would_have_ended(job, done, tmp_path, monkeypatch):
    out, document = done
    calls = []
    asked = cutting.SubnetAccuracy.__call__

    def dying(self, architecture):
        calls.append(architecture)
        if len(calls) == 6:
            raise Killed
        return asked(self, architecture)

    with monkeypatch.context() as patch:
        patch.setattr(cutting.SubnetAccuracy, "__call__", dying)
        with pytest.raises(Killed):
            hwbench.compress(**job, out=tmp_path / "cut", budget=ANY)
    again = hwbench.compress(**job, out=tmp_path / "cut", budget=ANY)
    for name in ("architecture", "accuracy", "parameters"):
        assert [each[name] for each in again["subnets"]] == [each[name] for each in document["subnets"]]
    assert again["full"]["accuracy"] == document["full"]["accuracy"]
    for file in ("teacher.safetensors", "space.json", "supernet.safetensors", "subnet-0/fp32.onnx", "subnet-0/int8.onnx"):
        assert (tmp_path / "cut" / file).read_bytes() == (out / file).read_bytes(), file


def test_one_encoder_cut_step_by_step_with_precision_per_block(job, done, tmp_path):
    """NetAdapt, from the fine-tuned encoder of another folder; and a third form of what it finds."""
    out, document = done
    cut = tmp_path / "cut"
    cut.mkdir()
    shutil.copyfile(out / "teacher.safetensors", cut / "teacher.safetensors")
    effort = replace(job["effort"], short_steps=1)
    asked = {**job, "effort": effort, "method": "netadapt", "mixed": 100.0, "budget": "0.6x"}
    found = hwbench.compress(**asked, out=cut)
    assert found["full"]["accuracy"]["fp32"] == document["full"]["accuracy"]["fp32"], "the same fine-tuned encoder"
    (one,) = found["subnets"]
    assert sum(one["architecture"]["heads"]) + sum(one["architecture"]["hidden"]) < 2 * (4 + 64)
    assert found["evaluated"] >= 1
    for each in (found["full"], one):
        assert set(each["accuracy"]) == {"fp32", "int8", "mixed"}
        assert set(each["mixture"]["int8"]) <= set(each["mixture"]["sensitivity"]), "which, is decided by what was measured"
        assert each["latency_ms"]["measured"]["mixed"]["min"] > 0
        ids = np.array([[2, 5, 3]])
        assert logits(cut / each["files"]["mixed"], ids, np.ones_like(ids)).shape == (1, 2)
    text = (cut / "compress.md").read_text()
    assert "NetAdapt" in text
    assert "subnet-0, mixed: int8 in " in text
    assert not (cut / "supernet.safetensors").exists()


def test_what_is_found_learns_on_alone_where_asked(job, done, tmp_path):
    out, document = done
    cut = tmp_path / "cut"
    cut.mkdir()
    shutil.copyfile(out / "teacher.safetensors", cut / "teacher.safetensors")
    found = hwbench.compress(**{**job, "effort": replace(job["effort"], tune_epochs=1)}, out=cut, budget=ANY)
    assert [each["architecture"] for each in found["subnets"]] == [each["architecture"] for each in document["subnets"]]
    assert (cut / "subnet-0.safetensors").exists()
    assert (cut / "subnet-0" / "fp32.onnx").read_bytes() != (out / "subnet-0" / "fp32.onnx").read_bytes()
    assert found["full"]["accuracy"] == document["full"]["accuracy"]


def test_a_checkpoint_of_another_model_is_refused_in_one_line(job, done, tmp_path):
    out, _ = done
    cut = tmp_path / "cut"
    cut.mkdir()
    shutil.copyfile(out / "teacher.safetensors", cut / "teacher.safetensors")
    with pytest.raises(
        UsageError, match="checkpoint of another model, other sentences or other settings; choose another --out"
    ):
        hwbench.compress(**job, out=cut, budget=ANY, seed=5)


@pytest.mark.parametrize("when", ["teacher.safetensors", "fp32.onnx", "int8.onnx", "compress.md"])
def test_a_full_disk_is_one_line_and_nothing_before_it_is_lost(job, done, tmp_path, monkeypatch, when):
    """Whatever is being saved: what is there stays, and the same command goes on to the same end."""
    out, document = done
    cut = tmp_path / "cut"
    shutil.copytree(out, cut)
    for name in ("compress.json", "compress.md", "subnet-0/fp32.onnx", "subnet-0/int8.onnx"):
        (cut / name).unlink()
    if when == "teacher.safetensors":
        (cut / when).unlink()
    replaced = Path.replace

    def full(self, target):
        if Path(target).name == when:
            raise OSError(28, "No space left on device")
        return replaced(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(HwbenchError, match=r"No space left on device") as caught:
            hwbench.compress(**job, out=cut, budget=ANY)
    assert "\n" not in str(caught.value)
    again = hwbench.compress(**job, out=cut, budget=ANY)
    assert again["subnets"][0]["accuracy"] == document["subnets"][0]["accuracy"]
    assert (cut / "teacher.safetensors").read_bytes() == (out / "teacher.safetensors").read_bytes()
    assert (cut / "subnet-0" / "fp32.onnx").read_bytes() == (out / "subnet-0" / "fp32.onnx").read_bytes()


def test_another_question_is_refused_in_the_same_folder(job, done):
    out, _ = done
    with pytest.raises(UsageError, match=r"begun with another seed: 0, now 1. Choose another --out"):
        hwbench.compress(**job, out=out, budget=ANY, seed=1)
    with pytest.raises(UsageError, match=r"begun with another budget: '1000000x', now '40x'"):
        hwbench.compress(**job, out=out, budget="40x")


def test_a_budget_nobody_keeps_is_answered_with_the_least_reachable_and_its_accuracy(job, tmp_path):
    with pytest.raises(InfeasibleBudget, match=r"has an accuracy of \d+\.\d\d % on dev") as caught:
        hwbench.compress(**{**job, "effort": replace(job["effort"], epochs=1)}, out=tmp_path / "cut", budget_ms=1e-6)
    assert caught.value.architecture["heads"] == [1, 1]
    assert "\n" not in str(caught.value)


def test_three_classes_of_strings_and_pairs_of_sentences_in_a_space_by_latency(job, tmp_path, monkeypatch):
    def formula(latency, space, *_):
        return op_cost(space, "latency_ms", "ms", lambda specs: np.array([op_of(spec).work(spec).macs / 1e6 for spec in specs]))

    monkeypatch.setattr("hwbench.study.encoder_costs.latency_cost", formula)  # all is measured, the space does not depend on it
    rng = np.random.default_rng(0)
    files = {}
    for name, n in (("train", 48), ("dev", 20)):
        rows = [f"{rng.choice(['NUM', 'HUM', 'LOC'])}\tthe film\twas {rng.choice(encoders.GOOD)}\n" for _ in range(n)]
        files[name] = tmp_path / f"{name}.tsv"
        files[name].write_text("label\tsentence1\tsentence2\n" + "".join(rows))
    effort = replace(job["effort"], epochs=1, evaluations=8, subnets=1)
    asked = {
        **job,
        **files,
        "test": None,
        "effort": effort,
        "space_cost": "latency_ms",
        "importance": "none",
        "rule": "single-path",
    }
    document = hwbench.compress(**asked, out=tmp_path / "cut", budget=ANY)
    assert json.loads((tmp_path / "cut" / "space.json").read_text())["cost"] == "latency_ms"
    assert document["labels"] == ["HUM", "LOC", "NUM"]
    assert set(document["full"]["accuracy"]["fp32"]) == {"dev"}
    ids = np.array([[2, 5, 3]])
    assert logits(tmp_path / "cut" / document["subnets"][0]["files"]["fp32"], ids, np.ones_like(ids)).shape == (1, 3)


BAD = {
    "another family": (
        lambda job, at: {"model": broken(job, at, model_type="roberta")},
        "family 'roberta'; known here is: bert",
    ),
    "no tokenizer": (lambda job, at: {"model": broken(job, at, without="tokenizer.json")}, "There is no tokenizer in"),
    "no weights": (lambda job, at: {"model": broken(job, at, without="model.safetensors")}, "There is no model.safetensors"),
    "other labels": (lambda job, at: {"dev": lines(at, "a\tugly\n")}, "has the label 'ugly', which"),
    "one class": (lambda job, at: {"train": lines(at, "a\tgood\nb\tgood\n")}, "at least two classes are needed"),
    "no sentences": (lambda job, at: {"train": at / "none.tsv"}, "Cannot read the sentences of"),
    "a long text": (lambda job, at: {"tokens": 41}, "this encoder reads at most 40"),
    "no such cost": (lambda job, at: {"space_cost": "energy"}, "Unknown cost that a space is a range of 'energy'"),
    "no such rule": (lambda job, at: {"rule": "once"}, "Unknown rule 'once'"),
    "no such teacher": (lambda job, at: {"teacher": "me"}, "Unknown teacher 'me'"),
    "no largest subnet": (lambda job, at: {"teacher": "in-place", "rule": "single-path"}, "take sandwich"),
    "no such importance": (lambda job, at: {"importance": "luck"}, "Unknown importance 'luck'"),
    "no such method": (lambda job, at: {"method": "prune"}, "Unknown method 'prune'"),
    "no such strategy": (lambda job, at: {"strategy": "luck"}, "Unknown strategy 'luck'"),
    "no such budget": (lambda job, at: {"budget": "half"}, "Budget 'half' is not understood"),
    "two budgets": (lambda job, at: {"budget_ms": 1.0}, "A budget is needed, and one only"),
    "no budget": (lambda job, at: {"budget": None}, "A budget is needed, and one only"),
    "no such device": (lambda job, at: {"device": "nowhere"}, "nowhere"),
}


def broken(job, at, without=None, **values):
    copy = shutil.copytree(job["model"], at / "model")
    if without:
        (copy / without).unlink()
    document = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**document, **values}))
    return copy


def lines(at, rows: str):
    path = at / "lines.tsv"
    path.write_text("sentence\tlabel\n" + rows)
    return path


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_before_anything_is_trained(job, tmp_path, case, monkeypatch):
    change, said = BAD[case]
    monkeypatch.setattr("hwbench.accuracy.supernet.bert.training.Training.run", None)
    with pytest.raises(HwbenchError, match=said) as caught:
        hwbench.compress(**{**job, "budget": ANY, **change(job, tmp_path)}, out=tmp_path / "cut")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cut" / "teacher.safetensors").exists()


def test_the_command_asks_the_same_and_what_is_through_is_not_done_again(job, done):
    from hwbench.cli.main import build

    out, _ = done
    said = ["compress", "--model", job["model"], "--train", job["train"], "--dev", job["dev"], "--test", job["test"],
            "--budget", ANY, "--out", out, "--workspace", job["workspace"], "--epochs", 2, "--supernet-epochs", 1,
            "--evaluations", 14, "--subnets", 2, "--space-cost", "macs_m"]  # fmt: skip
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    shown = CliRunner().invoke(build(), list(map(str, said)), prog_name="hwbench", catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    assert "subnet-0" in shown.stdout
    assert f"written: {out / 'compress.json'}" in shown.stdout.replace("\n", "")
    told = [line for line in shown.stdout.splitlines() if not line.startswith(("note: ", "written: "))]
    assert max(map(len, told)) <= 80


def test_an_edited_result_is_refused(job, done, tmp_path):
    out = shutil.copytree(done[0], tmp_path / "cut")
    told = json.loads((out / "compress.json").read_text())
    told["full"]["accuracy"]["fp32"]["dev"] = 99.0
    (out / "compress.json").write_text(json.dumps(told))
    with pytest.raises(DataError, match=r"was edited after hwbench wrote it .* remove it and run the same command"):
        hwbench.compress(**job, out=out, budget=ANY)
