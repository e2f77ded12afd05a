"""Predictors: the sum by hand, coefficients recovered exactly, and stored ones refused when they are not what they claim."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import hwbench
from hwbench.core import conformal, registry, workspace
from hwbench.core.errors import DataError, EnvironmentMismatch, MissingOps, UnknownName, UsageError
from hwbench.core.files import write_sealed
from hwbench.core.typed_json import encode as document
from hwbench.device import files
from hwbench.device.agent.environment import Environment
from hwbench.device.target import Target
from hwbench.lut.networks import read_networks
from hwbench.lut.table import Lut
from hwbench.network.spec import Setting
from hwbench.predictor import card as cards
from hwbench.predictor import fit, models, space_latency
from hwbench.predictor import rebuild as predictor_rebuild
from hwbench.predictor.aggregator import base as predictors
from hwbench.predictor.aggregator.base import terms_of
from hwbench.predictor.aggregator.calibrated_sum import CANDIDATES, leave_one_out
from hwbench.space.activity import sample
from hwbench.space.lowering import lower
from hwbench.space.slots import distinct_specs

SPACE = "autoformer-tiny"


def folder_of(root):
    return root / "predictors" / files.local_name() / space_latency.predictor_name(Target("box"), [SPACE])


def load(root) -> space_latency.Fitted:
    return space_latency.load(Target.of(workspace=root))


@pytest.fixture
def copy(fitted_workspace, tmp_path):
    """The fitted workspace, free to be damaged."""
    return shutil.copytree(fitted_workspace, tmp_path / "workspace")


def change_card(root, **changes) -> None:
    path = folder_of(root) / "card.json"
    write_sealed(path, {**json.loads(path.read_text()), **changes})


def one_line(error: pytest.ExceptionInfo) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


# Asking


@pytest.mark.parametrize("statistic", ["min", "p50"])
def test_a_prediction_is_the_calibrated_sum_by_hand(fitted_workspace, statistic):
    drawn = hwbench.sample(SPACE, 6, seed=11)
    card = json.loads((folder_of(fitted_workspace) / "card.json").read_text())
    with np.load(folder_of(fitted_workspace) / "arrays.npz") as stored:
        rows = dict(zip(stored["op_key"].tolist(), stored["row_ms"].tolist(), strict=True))
    part = card["statistics"][statistic]
    answers = hwbench.predict(SPACE, drawn.values, workspace=fitted_workspace, statistic=statistic)
    for values, column, answer in zip(drawn.values, drawn.population.T, answers, strict=True):
        total = part["state"]["constant_ms"]
        for spec, count in lower(drawn.space, column).counts().items():
            terms = terms_of(spec, rows)
            added = count * sum(c * terms[name] for name, c in part["state"]["coefficients"].items())
            assert answer["ops_ms"][spec.key] == pytest.approx(added, rel=1e-12)
            total += added
        assert answer["latency_ms"] == pytest.approx(total, rel=1e-12)
        assert answer["upper_ms"] == answer["high_ms"] == pytest.approx(total * (1 + part["margin"]), rel=1e-12)
        assert answer["low_ms"] == pytest.approx(total * np.exp(part["band"]["below"]), rel=1e-12)
        assert answer["low_ms"] <= answer["latency_ms"] <= answer["high_ms"]
        assert (answer["architecture"], answer["coverage"], answer["statistic"]) == (values, 1.0, statistic)
        assert (answer["device"], answer["runtime"]) == (files.local_name(), "onnxruntime")
    fitted = load(fitted_workspace)
    compiled = fitted.for_space(drawn.space, statistic).predict(drawn.population)
    assert compiled.value_ms == pytest.approx([a["latency_ms"] for a in answers], rel=1e-12)
    assert compiled.high_ms == pytest.approx([a["upper_ms"] for a in answers], rel=1e-12)
    one_by_one = fitted.predict_networks([lower(drawn.space, column) for column in drawn.population.T], statistic)
    assert one_by_one.value_ms == pytest.approx(compiled.value_ms, rel=1e-12)


def test_rows_of_the_table_are_what_is_summed(fitted_workspace):
    lut = Lut.read(fitted_workspace / "luts" / files.local_name() / "onnxruntime.parquet")
    with np.load(folder_of(fitted_workspace) / "arrays.npz") as stored:
        rows = dict(zip(stored["op_key"].tolist(), stored["row_ms"].tolist(), strict=True))
    assert rows == {key: row["latency_min_ms"] for (key, _), row in lut.rows.items()}


def test_files_values_and_searches_give_the_same_answer(fitted_workspace, tmp_path):
    pytest.importorskip("hwbench.optimize")
    drawn = hwbench.sample(SPACE, 3, seed=4, out=tmp_path / "archs.json")
    expected = hwbench.predict(SPACE, drawn.values, workspace=fitted_workspace)
    assert hwbench.predict(SPACE, tmp_path / "archs.json", workspace=fitted_workspace) == expected
    assert hwbench.predict(SPACE, str(tmp_path / "archs.json"), workspace=fitted_workspace) == expected
    assert hwbench.predict(SPACE, drawn.values[1], workspace=fitted_workspace) == expected[1:2]
    named = hwbench.predict(SPACE, drawn.values, device=files.local_name(), workspace=fitted_workspace)
    assert named == expected
    found = hwbench.search(SPACE, 1e6, tmp_path / "search", workspace=fitted_workspace, evaluations=20)
    for saved in (tmp_path / "search", tmp_path / "search" / "search.json"):
        answers = hwbench.predict(SPACE, saved, workspace=fitted_workspace)
        assert [a["architecture"] for a in answers] == found["architectures"]
        assert [a["latency_ms"] for a in answers] == pytest.approx([f["latency_ms"] for f in found["search"]["finalists"]])


def test_ops_without_a_row_are_refused_with_the_command(fitted_workspace):
    (values,) = hwbench.sample("bert", 1).values
    for ask in (
        lambda: hwbench.predict("bert", values, workspace=fitted_workspace),
        lambda: models.of_space(load(fitted_workspace), registry.get("space", "bert"), "min"),
    ):
        with pytest.raises(MissingOps) as error:
            ask()
        assert "ops have no latency at fp32-b1-t1-back-to-back in" in one_line(error)
        options = f"--space bert --workspace {fitted_workspace}"
        assert str(error.value).endswith(f"Run: hwbench profile {options} && hwbench fit {options}")
        assert all(key.startswith(("attention_block(", "ffn_block(", "pooled_head(", "token_")) for key in error.value.keys)


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        ({"space": "autoformer-tinny"}, UnknownName, "Did you mean autoformer-tiny"),
        ({"device": "pi4"}, UnknownName, "Unknown device 'pi4'"),
        ({"statistic": "mean"}, UsageError, "statistic 'mean' is unknown; available: min, p50"),
        (
            {"setting": Setting(threads=2)},
            UsageError,
            "/onnxruntime at fp32-b1-t2-back-to-back in",
        ),
        ({"arch": "none.json"}, UsageError, "There is no architecture file at none.json"),
        ({"arch": []}, UsageError, "No architecture of autoformer-tiny given"),
        ({"arch": {"embed_dim": 193}}, UsageError, "embed_dim = 193 is not one of"),
    ],
)
def test_what_cannot_be_answered_is_refused(fitted_workspace, ask, error, message):
    asked = {"space": SPACE, "arch": hwbench.sample(SPACE, 1).values, "workspace": fitted_workspace, **ask}
    with pytest.raises(error) as found:
        hwbench.predict(asked.pop("space"), **asked)
    assert message in one_line(found)


def test_an_unfitted_workspace_says_what_to_run(tiny_workspace, nothing_packaged):
    with pytest.raises(UsageError) as error:
        hwbench.predict(SPACE, hwbench.sample(SPACE, 1).values, workspace=tiny_workspace)
    asked = f"--space {SPACE} --workspace {tiny_workspace}"
    assert one_line(error).endswith(f"Run: hwbench profile {asked} && hwbench fit {asked}")


# The card


def test_the_card_says_what_the_predictor_rests_on(fitted_workspace):
    card = json.loads((folder_of(fitted_workspace) / "card.json").read_text())
    assert card["schema"] == cards.VERSION
    assert (card["kind"], card["spaces"], card["networks_per_space"]) == ("op-sum", [SPACE], {"fit": 4, "holdout": 4})
    assert len(set(card["fit_networks"])) == len(set(card["holdout_networks"])) == 4
    assert not set(card["fit_networks"]) & set(card["holdout_networks"])
    assert card["environment"]["runtime"] == "onnxruntime"
    assert card["data"] == {"file": "onnxruntime.parquet", "sha256": card["lut"]["sha256"], "rows": 18, "networks": 8}
    assert card["fill"] is None
    for statistic in ("min", "p50"):
        part = card["statistics"][statistic]
        assert part["holdout"]["n"] == part["fitted"]["n"] == part["holdout_by_space"][SPACE]["n"] == 4
        assert part["holdout"] == part["holdout_by_space"][SPACE]
        assert part["margin"] >= 0 >= part["band"]["below"]
        assert part["margin"] == pytest.approx(np.expm1(part["band"]["above"]))
    assert card["errors"]["test"] == card["statistics"]["min"]["holdout"]
    assert (card["noise_ceiling"], card["coverage"]) == (card["statistics"]["min"]["noise_ceiling"], None)
    assert card["additivity"]["choice"] == card["predictor"] == "calibrated_sum"
    assert card["additivity"]["why"] == "calibrated sum: untested, 4 networks are too few (5 needed)."
    assert card["rebuild"].endswith("--predictor auto --networks 4 --holdout 4 --seed 0 --stored")
    assert sorted(path.name for path in folder_of(fitted_workspace).iterdir()) == ["arrays.npz", "card.json"]


def test_few_held_out_networks_give_their_widest_residual_and_say_so(fitted_workspace):
    card = json.loads((folder_of(fitted_workspace) / "card.json").read_text())
    networks = fitted_workspace / "luts" / files.local_name() / "onnxruntime.networks.parquet"
    held = [row for row in read_networks(networks)[0] if row["key"] in card["holdout_networks"]]
    answers = hwbench.predict(SPACE, [json.loads(row["architecture"]) for row in held], workspace=fitted_workspace)
    ratios = [row["latency_min_ms"] / a["latency_ms"] for row, a in zip(held, answers, strict=True)]
    band = card["statistics"]["min"]["band"]
    assert np.exp(band["above"]) == pytest.approx(max(1.0, *ratios), rel=1e-9)
    assert np.exp(band["below"]) == pytest.approx(min(1.0, *ratios), rel=1e-9)
    assert band["coverage"] == pytest.approx(3 / 5)
    needed = conformal.least_pairs(conformal.COVERAGE)
    assert band["how"] == f"widest residual of 4 networks not fitted on: covers 60%; 90 % needs {needed}"


# Intervals


def test_networks_left_out_of_the_fit_stand_in_for_held_out_ones(copy):
    place = workspace.Workspace.at(copy)
    card = fit.fit(SPACE, workspace=copy, networks=4, holdout=4, stored=True).card
    assert card.statistics["min"].band.n == 4, "with 4 networks none can be left out"
    training, heldout = fit.calibration_sets([SPACE], 10, 10, 0)
    rows_ms, _ = fit.complete_rows(Lut.read(place.find("luts", files.local_name(), "onnxruntime.parquet")), Setting(), [SPACE])
    rng = np.random.default_rng(0)
    rows = {}
    for a in (*training, *heldout):
        for key, column in zip(a.keys, a.population.T, strict=True):
            ms = sum(n * rows_ms[s.key] for s, n in lower(a.space, column).counts().items()) * np.exp(rng.normal(0, 0.02))
            rows[key] = {"latency_min_ms": ms, "latency_median_ms": 1.2 * ms, "min_spread": 0.01, "median_spread": None}
    document, _, _ = fit._fit_all("calibrated_sum", fit._Networks(rows_ms, training, heldout, rows))
    part = document["statistics"]["min"]
    assert part["band"]["n"] == 20
    assert part["band"]["how"] == "split-conformal, 20 networks not fitted on"
    assert part["noise_ceiling"] == pytest.approx(0.01 * 0.6 / 1.69)
    assert document["statistics"]["p50"]["noise_ceiling"] is None


# From stored measurements


def test_a_predictor_is_rebuilt_from_stored_measurements(copy, tmp_path):
    before = document(load(copy).card)
    shutil.rmtree(folder_of(copy))
    with pytest.raises(UsageError, match=r"of 9 networks were not measured yet .* Leave out --stored to measure them"):
        hwbench.fit(SPACE, workspace=copy, networks=5, holdout=4, stored=True)
    hwbench.fit(SPACE, workspace=copy, networks=4, holdout=4, stored=True)
    again = fit.refit(workspace.Workspace.at(copy), folder_of(copy)).card
    again = document(again)
    volatile = {"fitted_at", "arrays_sha256"}
    assert {k: v for k, v in again.items() if k not in volatile} == {k: v for k, v in before.items() if k not in volatile}


@pytest.mark.parametrize(
    "path", sorted((workspace.packaged() / "predictors").glob("*/*/card.json")), ids=lambda p: p.parent.name
)
def test_shipped_predictors_are_rebuilt_with_the_errors_their_cards_state(path, tmp_path):
    card = document(cards.read(path))
    if card["kind"] != "op-sum":
        pytest.skip(f"a {card['kind']} predictor is rebuilt by its own verb")
    refitted = fit.refit(workspace.Workspace.at(tmp_path), path.parent)
    again = document(refitted.card)
    assert again["lut"]["sha256"] == card["lut"]["sha256"]
    for statistic, part in card["statistics"].items():
        assert predictor_rebuild.same(again["statistics"][statistic]["holdout"], part["holdout"])
        assert again["statistics"][statistic]["holdout_by_space"].keys() == part["holdout_by_space"].keys()
        unseen = space_latency.unseen_evidence(refitted, workspace.Workspace.at(tmp_path), statistic)
        assert unseen is None or not unseen["falls_short"], "intervals cover networks that took no part"


def test_cards_of_version_1_are_read(copy):
    path = folder_of(copy) / "card.json"
    card = json.loads(path.read_text())
    new = {"kind", "data", "features", "errors", "coverage", "noise_ceiling", "additivity", "fill", "sha256"}
    old = {k: v for k, v in card.items() if k not in new} | {"schema": 1}
    for part in old["statistics"].values():
        for name in ("band", "coverage", "noise_ceiling"):
            del part[name]
        part["margin"] = 0.04
    path.write_text(json.dumps(old))
    found = load(copy)
    assert (found.card.kind, found.card.coverage, found.card.additivity) == ("op-sum", None, None)
    assert found.card.errors["test"] == card["errors"]["test"]
    answer = hwbench.predict(SPACE, hwbench.sample(SPACE, 1).values, workspace=copy)[0]
    assert answer["high_ms"] == answer["upper_ms"] == pytest.approx(1.04 * answer["latency_ms"])
    assert answer["low_ms"] == pytest.approx(0.96 * answer["latency_ms"])


def test_the_card_of_another_kind_is_refused(copy):
    change_card(copy, kind="recovered")
    with pytest.raises(DataError, match=r"is a 'recovered' predictor; sums over ops are asked; fit one, as in: hwbench fit"):
        load(copy)


# Rows that were not measured


def drop_rows(root, keep) -> list[str]:
    path = root / "luts" / files.local_name() / "onnxruntime.parquet"
    table = Lut.read(path)
    Lut(path, table.environment, {k: row for k, row in table.rows.items() if keep(k[0])}).write(path)
    return sorted(k for k, _ in table.rows if not keep(k))


def test_ops_that_were_not_measured_are_filled_in_and_counted(copy):
    lost = drop_rows(copy, lambda key: "dim=216" not in key)
    assert len(lost) == 6
    fitted = hwbench.fit(SPACE, workspace=copy, networks=4, holdout=4, stored=True)
    assert fitted.filled == set(lost)
    assert (fitted.card.fill["rows"], fitted.card.fill["measured_share"]) == (6, pytest.approx(12 / 18))
    assert set(fitted.card.fill["error_by_group"]) == {
        "attention_block-pre-fused", "classifier_head", "ffn_block-gelu-pre", "patch_embedding",
    }  # fmt: skip
    assert fitted.card.data.rows == 12
    loaded = load(copy)
    assert loaded.filled == fitted.filled
    seen = set()
    for values, answer in zip(
        (drawn := hwbench.sample(SPACE, 12)).values, hwbench.predict(SPACE, drawn.values, workspace=copy), strict=True
    ):
        assert answer["coverage"] == (0.0 if values["embed_dim"] == 216 else 1.0)
        seen.add(answer["coverage"])
    assert seen == {0.0, 1.0}
    told = models.of_space(loaded, drawn.space, "min").predict(drawn.population)
    assert set(told.coverage.tolist()) == seen


def test_groups_that_were_never_measured_stay_errors(copy):
    lost = drop_rows(copy, lambda key: not key.startswith("classifier_head"))
    with pytest.raises(MissingOps) as error:
        hwbench.fit(SPACE, workspace=copy, networks=4, holdout=4, stored=True)
    assert set(error.value.keys) <= set(lost)


def test_a_predictor_restored_is_the_one_fitted(fitted_workspace):
    fitted = load(fitted_workspace)
    again = registry.make("aggregator", "calibrated_sum")
    values, arrays = fitted.predictors["min"].state()
    again.restore(json.loads(json.dumps(values)), arrays)
    specs = distinct_specs(registry.get("space", SPACE))
    assert (again.op_ms(specs) == fitted.predictors["min"].op_ms(specs)).all()
    assert again.constant_ms == fitted.predictors["min"].constant_ms
    assert all(array.dtype != object for array in arrays.values())


def test_tampered_arrays_are_refused(copy):
    path = folder_of(copy) / "arrays.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    arrays["row_ms"] = arrays["row_ms"] * 0.9
    np.savez(path, **arrays)
    rebuild = json.loads((folder_of(copy) / "card.json").read_text())["rebuild"]
    for _ in range(2):
        with pytest.raises(DataError) as error:
            load(copy)
        assert "arrays.npz does not belong to its card (missing or edited). Run: hwbench fit --space" in one_line(error)
        assert rebuild in str(error.value)
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("text", ["", "{", "\N{SNOWMAN}"])
def test_a_card_that_is_no_json_is_refused(copy, text):
    (folder_of(copy) / "card.json").write_text(text)
    with pytest.raises(DataError, match=r"predictor card .* is not readable JSON"):
        load(copy)


def test_a_newer_card_says_update_hwbench(copy):
    change_card(copy, schema=4)
    with pytest.raises(DataError) as error:
        load(copy)
    assert one_line(error).endswith("card.json has schema 4, this hwbench knows 3: update hwbench.")


def test_the_predictor_of_another_machine_is_refused_for_local(copy):
    card = json.loads((folder_of(copy) / "card.json").read_text())
    change_card(copy, environment={**card["environment"], "cpu_model": "Fast 9000"})
    ask = {"arch": hwbench.sample(SPACE, 1).values, "workspace": copy}
    with pytest.raises(EnvironmentMismatch) as error:
        hwbench.predict(SPACE, **ask)
    here = card["environment"]["cpu_model"]
    assert f"was measured on another machine or runtime: cpu_model is 'Fast 9000' there, '{here}' here" in one_line(error)
    assert hwbench.predict(SPACE, **ask, device=files.local_name())  # by its own name it answers


# Fitting


def test_too_few_networks_are_refused(tiny_workspace):
    for few in ({"networks": 3}, {"holdout": 3}):
        with pytest.raises(UsageError, match="At least 4 networks to fit and 4 held out per space"):
            hwbench.fit(SPACE, workspace=tiny_workspace, **few)
    for name in ("calibrated_sum", "regression"):
        with pytest.raises(UsageError, match="Calibration needs at least 4 measured networks, got 3"):
            registry.make("aggregator", name).fit({}, [None] * 3, np.ones(3))
    for name in registry.names("aggregator"):
        with pytest.raises(UsageError, match="was not fitted yet"):
            registry.make("aggregator", name).op_ms([])
    with pytest.raises(UnknownName, match=r"Unknown aggregator 'calibrated_sun'\. Did you mean calibrated-sum"):
        hwbench.fit(SPACE, workspace=tiny_workspace, predictor="calibrated_sun")


def test_a_space_without_rows_is_not_measured_in_vain(tiny_workspace):
    with pytest.raises(MissingOps):
        hwbench.fit([SPACE, "bert"], workspace=tiny_workspace)
    assert not list((tiny_workspace / "luts" / files.local_name()).glob("*networks*"))


@pytest.fixture(scope="module")
def made_up():
    """24 networks of two spaces whose rows have random latencies: terms are known, and none follows from another."""
    rng = np.random.default_rng(3)
    spaces = [registry.get("space", name) for name in (SPACE, "bert")]
    rows = {spec.key: float(ms) for s in spaces for spec, ms in ((x, rng.uniform(0.2, 2.0)) for x in distinct_specs(s))}
    workloads = [lower(s, column) for s in spaces for column in sample(s, 12, rng).T]

    def total(term: str) -> np.ndarray:
        return np.array([sum(n * terms_of(s, rows)[term] for s, n in w.counts().items()) for w in workloads])

    return SimpleNamespace(rows=rows, workloads=workloads, total=total, rng=rng)


def fitted_on(made_up, measured: np.ndarray):
    predictor = registry.make("aggregator", "calibrated_sum")
    predictor.fit(made_up.rows, made_up.workloads, measured)
    return predictor, predictor.state()[0]["coefficients"]


def test_known_coefficients_are_recovered(made_up):
    measured = 0.7 + 1.1 * made_up.total("rows_ms")
    predictor, coefficients = fitted_on(made_up, measured)
    assert predictor.constant_ms == pytest.approx(0.7, rel=1e-9)
    assert coefficients["rows_ms"] == pytest.approx(1.1, rel=1e-9)
    assert all(abs(c) < 1e-9 for name, c in coefficients.items() if name != "rows_ms")
    assert [predictors.sum_ops(predictor, w) for w in made_up.workloads] == pytest.approx(measured, rel=1e-9)
    (spec,) = [s for s in distinct_specs(registry.get("space", SPACE)) if s.op == "classifier_head" and s["dim"] == 192]
    assert predictor.op_ms([spec]) == pytest.approx([1.1 * made_up.rows[spec.key]], rel=1e-9)


def test_a_further_term_is_taken_when_it_earns_its_place(made_up):
    noise = 1 + 1e-3 * np.random.default_rng(0).standard_normal(24)
    plain = (0.7 + 1.1 * made_up.total("rows_ms")) * noise
    assert list(fitted_on(made_up, plain)[1]) == ["rows_ms"]
    for term, weight in zip(CANDIDATES, (0.05, 0.2, 0.1), strict=True):
        _, coefficients = fitted_on(made_up, plain + weight * made_up.total(term))
        assert list(coefficients)[:2] == ["rows_ms", term]
        assert coefficients[term] == pytest.approx(weight, rel=0.05)


def test_few_networks_allow_no_further_term(made_up):
    measured = 0.7 + 1.1 * made_up.total("rows_ms") + 0.05 * made_up.total("weights_mb")
    predictor = registry.make("aggregator", "calibrated_sum")
    predictor.fit(made_up.rows, made_up.workloads[:6], measured[:6])
    assert list(predictor.state()[0]["coefficients"]) == ["rows_ms"]


def test_an_op_without_a_row_is_no_number(made_up):
    predictor, _ = fitted_on(made_up, 0.7 + 1.1 * made_up.total("rows_ms"))
    foreign = distinct_specs(registry.get("space", "autoformer-base"))
    assert np.isnan(predictor.op_ms(foreign)).all()


def test_leave_one_out_equals_fitting_again_without_each(made_up):
    matrix = np.column_stack([np.ones(24), made_up.total("rows_ms"), made_up.total("weights_mb")])
    measured = made_up.total("rows_ms") * np.random.default_rng(1).uniform(0.8, 1.2, 24)
    errors = []
    for i in range(24):
        rest = np.arange(24) != i
        solution = predictors.weighted_fit(matrix[rest], measured[rest])
        errors.append(abs(matrix[i] @ solution - measured[i]) / measured[i])
    assert leave_one_out(matrix, measured) == pytest.approx(np.mean(errors), rel=1e-9)


def test_the_fit_minimises_the_relative_error(made_up):
    matrix = np.column_stack([np.ones(24), made_up.total("rows_ms")])
    measured = made_up.total("rows_ms") * np.random.default_rng(1).uniform(0.8, 1.2, 24)
    best = predictors.weighted_fit(matrix, measured)

    def loss(solution: np.ndarray) -> float:
        return float((((matrix @ solution) / measured - 1) ** 2).sum())

    for step in np.vstack([np.eye(2), -np.eye(2)]):
        assert loss(best + 1e-4 * step) > loss(best)


def test_a_table_of_another_machine_is_not_fitted_on_as_this_one(tiny_workspace, tmp_path, fast_policy):
    root = shutil.copytree(tiny_workspace, tmp_path / "workspace")
    path = root / "luts" / files.local_name() / "onnxruntime.parquet"
    table = Lut.read(path)
    replace(table, environment=Environment({**table.environment.values, "cpu_model": "Fast 9000"})).write(path)
    with pytest.raises(EnvironmentMismatch, match="another machine or runtime: cpu_model is 'Fast 9000' there"):
        hwbench.fit(SPACE, workspace=root, policy=fast_policy)
