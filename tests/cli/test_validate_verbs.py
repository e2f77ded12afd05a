"""hwbench validate, specialise and list tables: what is printed, the one JSON document, one line for bad input."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import public_tables
import pytest
from cells import write
from typer.testing import CliRunner

from hwbench.cli.main import build
from hwbench.core.errors import UsageError
from hwbench.study import validate as study_validate

TABLE = "nasbench201-cifar10"


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    return write(tmp_path_factory.mktemp("tables"))


def run(*arguments, code=0, **env):
    runner = CliRunner(env={"COLUMNS": "220", **env})
    done = runner.invoke(build(), [str(a) for a in arguments], catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done


def validate(tables, tmp_path, *more, **named):
    asked = ("validate", "--table", TABLE, "--device", "chip", "--strategy", "random", "--seeds", 2, "--evaluations", 50)
    return run(*asked, "--tables", tables, "--out", tmp_path / "out", *more, **named)


def test_validate_prints_figures_and_where_the_report_is(tables, tmp_path):
    shown = validate(tables, tmp_path, "--strategy", "local", "--setting", "paid").stdout
    assert f"{TABLE}, 1 devices, 2 seeds, latency paid" in " ".join(shown.split())
    assert "local" in shown
    assert "at 50" in shown
    assert "at 100" not in shown
    assert "report.md" in shown
    assert (tmp_path / "out" / "cards" / "local.json").exists()


def test_validate_answers_with_one_document(tables, tmp_path):
    document = json.loads(validate(tables, tmp_path, "--json").stdout.splitlines()[-1])
    assert set(document["strategies"]["random"]) == {"paid", "known"}
    assert document["failed"] == []


def test_the_folder_of_tables_may_stand_in_the_environment(tables, tmp_path):
    asked = ("validate", "--table", TABLE, "--device", "chip", "--strategy", "random", "--seeds", 1, "--evaluations", 50)
    done = run(*asked, "--setting", "paid", "--out", tmp_path, "--json", HWBENCH_TABLES=str(tables))
    assert json.loads(done.stdout.splitlines()[-1])["devices"] == ["chip"]


def test_runs_that_failed_are_said_and_the_exit_is_not_zero(tables, tmp_path, monkeypatch):
    def broken(run, tables):
        raise ValueError("no luck")

    monkeypatch.setattr(study_validate, "run_one", broken)

    def here(name, workers, threads):  # where what is broken is seen
        return ThreadPoolExecutor(workers)

    monkeypatch.setattr(study_validate, "make_executor", here)
    done = validate(tables, tmp_path, "--setting", "paid", "--json", code=1)
    assert len(json.loads(done.stdout.splitlines()[-1])["failed"]) == 8
    assert "8 runs failed and count nowhere, first random on chip, setting paid, seed 0: ValueError: no luck" in done.stderr


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--device", "toaster"], "Unknown device 'toaster'"),
        (["--strategy", "nsga3"], "Unknown strategy 'nsga3'. Did you mean nsga2"),
        (["--setting", "guessed"], "Unknown setting 'guessed'"),
    ],
)
def test_validate_refuses_in_one_line(tables, tmp_path, more, message):
    with pytest.raises(UsageError) as error:
        validate(tables, tmp_path, *more)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_validate_needs_the_tables(tmp_path):
    with pytest.raises(UsageError, match="There is no folder of benchmark tables at /nowhere"):
        validate("/nowhere", tmp_path)


def test_specialise_prints_the_cross_table_and_the_shares(tables, tmp_path):
    asked = ("specialise", "--table", TABLE, "--device", "chip", "--device", "board", "--device", "edge", "--tables", tables)
    shown = run(*asked, "--out", tmp_path).stdout
    assert "winner of" in shown
    assert "6 pairs: another device's winners" in " ".join(shown.split())
    assert "lack over 0.5 points %" in shown
    assert f"report: {tmp_path / 'specialise.md'}; every pair: {tmp_path / 'specialise.csv'}" in shown
    assert {path.name for path in tmp_path.iterdir()} == {
        "specialise.md", "specialise.csv", "specialise.json", "cross-p10.png", "cross-p25.png", "cross-p50.png"
    }  # fmt: skip
    more = ("--budget-percentile", 50, "--budget-percentile", 75, "--complete", "--json")
    document = json.loads(run(*asked, "--out", tmp_path, *more).stdout.splitlines()[-1])
    assert [found["budget_percentile"] for found in document["budgets"]] == [50, 75]
    assert document["devices"] == ["chip", "board", "edge"]


def test_a_table_is_asked_for_where_none_is_given(monkeypatch):
    monkeypatch.delenv("HWBENCH_TABLES", raising=False)
    for verb in (("validate", "--table", TABLE, "--device", "chip"), ("specialise", "--table", TABLE)):
        with pytest.raises(UsageError, match="Give --tables DIR or set HWBENCH_TABLES"):
            run(*verb)


def test_tables_are_listed_with_their_size():
    listed = json.loads(run("list", "tables", "--json").stdout.splitlines()[-1])
    (cells,) = (row for row in listed if row["name"] == TABLE)
    assert (cells["genes"], cells["combinations"]) == ("6", "1.56e+04")
    assert "NAS-Bench-201" in cells["about"]


@pytest.mark.parametrize(("kind", "before"), [("benchmarks", "tables"), ("benchmark", "table"), ("transports", "reaches")])
def test_kinds_answer_to_what_they_were_called_before(kind, before):
    now, then = (json.loads(run("list", name, "--json").stdout.splitlines()[-1]) for name in (kind, before))
    assert now == then != []


def test_proxies_are_held_against_a_table(tmp_path):
    asked = ("validate", "--table", "vitbench-pit", "--proxy", "depth", "--tables", public_tables.folder())
    shown = run(*asked, "--workspace", tmp_path).stdout
    assert "40 networks of pit-ti" in " ".join(shown.split())
    assert "within cells" in shown
    assert "flops" in shown
    document = json.loads(run(*asked, "--workspace", tmp_path, "--json").stdout.splitlines()[-1])
    assert set(document["proxies"]) == {"params", "flops", "depth", "width"}
    assert document["proxies"]["params"]["params_held_fixed"]["value"] is None


def test_a_sample_is_searched_as_a_pool_with_a_cost_of_its_networks(tmp_path):
    asked = ("validate", "--table", "vitbench-pit", "--cost", "params_m", "--strategy", "random", "--seeds", 2)
    shown = run(*asked, "--evaluations", 20, "--tables", public_tables.folder(), "--out", tmp_path).stdout
    assert "vitbench-pit, 1 devices, 2 seeds, params_m known: hypervolume %" in " ".join(shown.split())
    assert "strategies choose among these networks only" in " ".join(shown.split())
    assert "at 20" in shown


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "validate needs --device or --cost as well"),
        (["--proxy", "params", "--cost", "params_m"], "validate --proxy does not read --cost"),
        (["--cost", "params_m", "--workspace", "."], "validate does not read --workspace"),
        (["--cost", "grams"], "Unknown device 'grams'"),
    ],
)
def test_what_is_weighed_against_what_is_asked_for(more, message):
    with pytest.raises(UsageError, match=message):
        run("validate", "--table", "vitbench-pit", "--tables", public_tables.folder(), *more)
