"""Our own benchmark from images to tables, on made-up images; a training that is killed ends as if it had not been."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors import safe_open

from hwbench.accuracy.supernet.supernet import Supernet
from hwbench.core import registry
from hwbench.core.errors import UsageError
from hwbench.core.stats import kendall_tau
from hwbench.device import files
from studies import provenance
from studies.own_benchmark import figures, images, judging, subnets, training
from studies.own_benchmark.__main__ import STUDY
from studies.own_benchmark.training import Recipe

STAGES = ("supernet", "inherited", "scratch")


@pytest.fixture(scope="module")
def datasets(tmp_path_factory) -> Path:
    """Images whose class is the colour they tend to."""
    from PIL import Image

    root, rng = tmp_path_factory.mktemp("datasets"), np.random.default_rng(0)
    for name, n in (("train", 400), ("test", 100)):
        labels = np.arange(n) * images.CLASSES // n  # sorted, as the real files are
        jpegs = []
        for label in labels:
            stream = io.BytesIO()
            noise = rng.integers(0, 120, (32, 32, 3)) + 12 * np.array([label, images.CLASSES - label, label % 3])
            Image.fromarray(noise.astype(np.uint8)).save(stream, "JPEG")
            jpegs.append(stream.getvalue())
        path = root / images.FOLDER / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"label": labels.astype(np.uint8), "jpeg": jpegs}), path)
    return root


def words(out: Path, datasets: Path, *stages: str) -> list[str]:
    asked = [word for stage in stages for word in ("--stage", stage)]
    return ["--tiny", "--out", str(out), "--datasets", str(datasets), *asked]


def lines(out: Path, stage: str) -> list[dict[str, Any]]:
    """Rows in the order they came."""
    return [json.loads(line) for line in (out / "rows" / f"{stage}.jsonl").read_text().splitlines()]


def rows_of(out: Path, stage: str) -> dict[str, Any]:
    """Without how long they took."""
    found = {row["row"]: row for row in lines(out, stage)}
    for row in found.values():
        for timed in (row, *row.get("curve", ())):
            timed.pop("seconds", None)
    return found


def committed(out: Path, place: Path) -> Path:
    """What is published of a run: without trainings under way, locks and the workspace."""
    return Path(shutil.copytree(out, place / "out", ignore=shutil.ignore_patterns("unfinished", "locks", "workspace")))


def keep(out: Path, stage: str, n: int) -> list[str]:
    """As if only the first n rows had been made."""
    path = out / "rows" / f"{stage}.jsonl"
    kept = path.read_text().splitlines(keepends=True)[:n]
    path.write_text("".join(kept))
    (out / "stages" / f"{stage}.json").unlink()
    return [json.loads(line)["row"] for line in kept]


@pytest.fixture(scope="module")
def whole(datasets, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    assert STUDY.main(words(out, datasets)) == 0
    return out


def test_a_trial_run_ends_in_tables_and_a_report(whole):
    text = (whole / "own_benchmark.md").read_text()
    for title in ("Supernet", "Inherited accuracy", "From scratch", "Latency"):
        assert f"## {title}" in text
    rows = registry.get("benchmark", "autoformer_cifar10-scratch").read(whole)
    assert len(rows) == 3
    (device,) = rows.latency_ms
    assert len(rows.usable(device)) == 3
    assert list(rows.partial) == [0.5]
    inherited = registry.get("benchmark", "autoformer_cifar10-test").read(whole)
    assert len(inherited) == 6
    assert len(inherited.usable(device)) == 6
    card = json.loads((whole / "own-benchmark" / "card.json").read_text())
    assert card["counts"] == {"networks": 6, "trainings": 6, "trainings_planned": 6, "latencies": 6}
    assert card["machines"] == {device: {"networks": 6, "trainings": 6}}
    assert "Preliminary" not in text
    assert list((whole / "unfinished").iterdir()) == []


def test_rows_come_in_an_order_that_may_be_cut_anywhere(whole):
    names = subnets.chosen(2)
    assert {row["row"] for row in lines(whole, "inherited")} == set(names)
    assert [row["row"] for row in lines(whole, "scratch")] == [f"{names[i]}-{seed}" for i in (0, 2, 4) for seed in (0, 1)]


def test_subnets_are_judged_in_portions_of_all_sizes(monkeypatch):
    monkeypatch.setattr(judging, "PORTION", 3)
    names = subnets.in_turn(subnets.chosen(5), 15)
    found = judging.in_portions(names)
    assert set(found[:9]) == set(names[:9])
    assert set(found[9:]) == set(names[9:])
    widths = [subnets.column(name)[0] for name in found]
    assert widths[:9] == sorted(widths[:9]) != [subnets.column(name)[0] for name in names[:9]]


def test_judging_many_subnets_gives_what_judging_each_alone_gives(datasets):
    data, net = images.read(datasets, tiny=True), Supernet.of_space(subnets.space())
    net.initialise(3)
    deepest = subnets.largest()
    net.activate(subnets.network(deepest))
    told = net(data.scaled(data.train.pixels)).argmax(1).numpy()
    split = images.Split(data.train.pixels, told)  # labels of which every other network misses some
    judge = judging.Judge(net, data, split)
    other_end = deepest[:-2] + "00"  # alike up to the last layer
    shallow = subnets.column(deepest).copy()
    shallow[1], shallow[5:7], shallow[10:12] = 1, 0, 0
    computed: list[str] = []
    for node in subnets.network(deepest).nodes:
        net.get_submodule(node.name).register_forward_hook(lambda part, given, out, name=node.name: computed.append(name))
    for name, first in (
        (deepest, "stem"),
        (other_end, "layer4.ffn"),
        (shallow.tobytes().hex(), "layer3.attention"),
        (deepest, ""),
    ):
        computed.clear()
        found = judge.accuracy(subnets.network(name))
        assert not first or computed[0] == first
        assert found == training.accuracy(net, data, split)
        assert (found == 100) == (name == deepest)


def test_what_is_committed_goes_on_on_another_machine(whole, datasets, tmp_path, monkeypatch, capsys):
    out = committed(whole, tmp_path)
    kept = {"inherited": keep(out, "inherited", 4), "scratch": keep(out, "scratch", 3)}
    (here,) = json.loads((whole / "own-benchmark" / "card.json").read_text())["machines"]
    machine = {**provenance.machine(), "device": "another-box", "cpu": "Another CPU"}
    monkeypatch.setattr(provenance, "machine", lambda: machine)
    monkeypatch.setattr(files, "local_name", lambda: "another-box")

    assert STUDY.main([*words(out, datasets), "--again", "table"]) == 0
    assert "**Preliminary: 3 of 6 trainings from scratch so far.**" in capsys.readouterr().out
    assert len(registry.get("benchmark", "autoformer_cifar10-test").read(out)) == 4

    assert STUDY.main([*words(out, datasets, "inherited", "scratch"), "--again", "table"]) == 0
    for stage, first in kept.items():
        made, before = rows_of(out, stage), rows_of(whole, stage)
        assert {name for name, row in made.items() if row["machine"] == here} == set(first)
        assert {name for name, row in made.items() if row["machine"] == "another-box"} == set(before) - set(first)
        for row in (*made.values(), *before.values()):  # this CPU is the same, so numbers are, too
            del row["machine"], row["sum"]
        assert made == before
    card = json.loads((out / "own-benchmark" / "card.json").read_text())
    assert card["machines"] == {here: {"networks": 4, "trainings": 3}, "another-box": {"networks": 2, "trainings": 3}}
    text = capsys.readouterr().out
    assert "Some stages ran on another-box." in text
    assert f"networks on {here}, in one sitting" in text  # its latencies are still the first machine's


def test_rows_of_other_weights_or_another_recipe_are_not_mixed(whole, datasets, tmp_path, capsys):
    out = committed(whole, tmp_path)
    keep(out, "inherited", 5)
    weights = out / "own-benchmark" / "supernet.safetensors"
    before = weights.read_bytes()
    training.finish(weights, Supernet.of_space(subnets.space()), [])
    assert STUDY.main(words(out, datasets, "inherited")) == 1
    assert f"row {lines(out, 'inherited')[0]['row']} was made with" in capsys.readouterr().err
    weights.write_bytes(before)
    path = out / "rows" / "scratch.jsonl"
    path.write_text("".join(json.dumps({**row, "of": "0" * 16}) + "\n" for row in lines(out, "scratch")))
    assert STUDY.main([*words(out, datasets), "--again", "table"]) == 1
    assert f"row {lines(out, 'scratch')[0]['row']} was made with {'0' * 16}, and now it is" in capsys.readouterr().err


def test_a_row_that_is_there_twice_is_refused(whole, datasets, tmp_path, capsys):
    out = committed(whole, tmp_path)
    path = out / "rows" / "scratch.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines(keepends=True)[0])
    assert STUDY.main([*words(out, datasets), "--again", "table"]) == 1
    assert "twice; delete one of its lines" in capsys.readouterr().err


def test_of_the_supernet_weights_and_curve_stay_and_nothing_is_trained_anew(whole, datasets, tmp_path):
    out = committed(whole, tmp_path)
    weights = out / "own-benchmark" / "supernet.safetensors"
    with safe_open(str(weights), "pt") as stored:
        assert set(stored.keys()) == {name for name, _ in Supernet.of_space(subnets.space()).named_parameters()}
    content, stage = weights.read_bytes(), out / "stages" / "supernet.json"
    result = json.loads(stage.read_text())["result"]
    stage.unlink()
    assert STUDY.main(words(out, datasets, "supernet")) == 0
    assert weights.read_bytes() == content
    assert json.loads(stage.read_text())["result"] == result


def test_tau_and_its_interval_are_those_of_single_resamples():
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 6, 12), rng.integers(0, 6, 12)
    found = figures.tau(a, b)
    assert found["tau"] == pytest.approx(kendall_tau(a, b))
    drawn = np.random.default_rng(figures.SEED).multinomial(12, np.full(12, 1 / 12), figures.RESAMPLES)
    single = [kendall_tau(np.repeat(a, times), np.repeat(b, times)) for times in drawn]
    low, high = np.nanpercentile(single, [2.5, 97.5])
    assert (found["low"], found["high"]) == pytest.approx((low, high))
    cells = np.repeat([0, 1], 6)
    apart = figures.tau(np.arange(12), np.where(cells == 0, np.arange(12), 100 - np.arange(12)), cells)
    assert apart["tau"] == 0  # all pairs of the one cell agree, all of the other disagree


def test_networks_with_too_few_trainings_are_left_out_of_the_figures(whole):
    inherited, scratch = rows_of(whole, "inherited"), rows_of(whole, "scratch")
    assert figures.scratch(scratch, inherited, 2)["networks"] == 3
    assert figures.scratch(dict(list(scratch.items())[:5]), inherited, 2) is None
    assert "inherited, mean of seeds" not in figures.scratch(scratch, {}, 2)["taus"]


@pytest.mark.campaign  # the test behind it interrupts a training within one process
@pytest.mark.slow  # three processes that import torch
def test_killed_at_any_moment_it_ends_as_if_it_had_not_been(whole, datasets, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(provenance.ROOT)}
    command = [sys.executable, "-m", "studies.own_benchmark", *words(tmp_path, datasets, *STAGES)]

    def until(pattern: str) -> None:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not list(tmp_path.glob(pattern)):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()

    until("own-benchmark/supernet.safetensors")
    until("rows/inherited.jsonl")
    until("unfinished/*.safetensors")
    assert STUDY.main(words(tmp_path, datasets, *STAGES)) == 0
    for stage in ("inherited", "scratch"):
        assert rows_of(tmp_path, stage) == rows_of(whole, stage)


def test_a_training_interrupted_within_an_epoch_leaves_the_same_weights(datasets, tmp_path):
    data, recipe = images.read(datasets, tiny=True), Recipe(epochs=3, batch=64)
    network = subnets.network("00" * len(subnets.space().genes))
    steps = 0

    def interrupt(rng: np.random.Generator) -> None:
        nonlocal steps
        steps += 1
        if steps == 6:  # in the second epoch
            raise KeyboardInterrupt

    through, stopped = Supernet.of_network(network), Supernet.of_network(network)
    curve = training.train(through, network, data, recipe, 5, tmp_path / "through")
    with pytest.raises(KeyboardInterrupt):
        training.train(stopped, network, data, recipe, 5, tmp_path / "stopped", interrupt)
    resumed = training.train(Supernet.of_network(network), network, data, recipe, 5, tmp_path / "stopped")
    training.load(tmp_path / "stopped", stopped)
    for name, parameter in through.named_parameters():
        assert torch.equal(parameter, stopped.get_parameter(name)), name
    assert [(e["loss"], e["validation"]) for e in curve] == [(e["loss"], e["validation"]) for e in resumed]
    other = training.train(Supernet.of_network(network), network, data, recipe, 6, tmp_path / "other")
    assert other[-1]["loss"] != curve[-1]["loss"]


def test_validation_is_held_out_of_training_evenly(datasets):
    data = images.read(datasets, tiny=True)
    assert (len(data.train), len(data.validation), len(data.test)) == (300, 100, 100)
    assert (np.bincount(data.validation.labels) == 10).all()
    seen = {image.tobytes() for image in data.train.pixels}
    assert not any(image.tobytes() in seen for image in data.validation.pixels)


def test_crops_and_mirrors_are_of_the_image_itself(datasets):
    data = images.read(datasets, tiny=True)
    chosen = np.arange(20)
    padded = np.pad(data.train.pixels[chosen], ((0, 0), (0, 0), (4, 4), (4, 4)))
    for i, crop in enumerate(data.train.augmented(chosen, np.random.default_rng(1))):
        places = [(padded[i, :, y : y + 32, x : x + 32]) for y in range(9) for x in range(9)]
        assert any((crop == place).all() or (crop == place[..., ::-1]).all() for place in places)


def test_the_rate_rises_and_falls_to_nothing():
    recipe = Recipe(epochs=1, rate=1.0)
    rates = [recipe.rate_at(step, 100) for step in range(100)]
    assert np.argmax(rates) in (9, 10)
    assert max(rates) == 1.0
    assert rates[0] == 0.1
    assert rates[-1] < 0.001
    assert (np.diff(rates[10:]) < 0).all()


def test_subnets_fill_three_bins_of_parameters_and_follow_from_a_seed():
    names = subnets.chosen(5)
    population = np.stack([subnets.column(name) for name in names], axis=1)
    np.testing.assert_array_equal(subnets.bins(population), np.repeat([0, 1, 2], 5))
    assert names == subnets.chosen(5)
    assert len(set(names)) == 15
    assert subnets.in_turn(names, 4) == [names[0], names[5], names[10], names[1]]
    assert sorted(subnets.in_turn(names, 15)) == sorted(names)


def test_a_folder_without_the_images_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"train\.parquet is missing; give the folder that holds cifar10_jpeg by --datasets"):
        images.read(tmp_path)
