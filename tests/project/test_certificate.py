"""A certificate holds: a bound is called certified only where its calibration saw the space, and no result mixes predictors.

Two spaces are really measured (briefly: no test depends on how well); what is fitted, searched, verified and reported in
which order is random. The story that started this: fitting B replaced A's predictor, and a search of A certified B's interval.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import hwbench
from hwbench.cli.main import build
from hwbench.core import registry
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import write_sealed
from hwbench.device import files
from hwbench.device.target import Target
from hwbench.lut.table import Lut
from hwbench.optimize import result
from hwbench.predictor import space_latency
from hwbench.space.slots import distinct_specs

SPACES = ("autoformer-tiny", "nasbench201")
AMPLE_MS = 1e6
"""A budget that every network keeps, so that a search always has finalists."""


@pytest.fixture(scope="module")
def measured(tiny_workspace, fast_policy, tmp_path_factory) -> Path:
    """Tables of both spaces, and the networks of a fit of each; no predictor yet."""
    root = shutil.copytree(tiny_workspace, tmp_path_factory.mktemp("certificate") / "workspace")
    hwbench.profile(SPACES[1], workspace=root, policy=fast_policy)
    for space in SPACES:
        hwbench.fit(space, workspace=root, networks=4, holdout=4, policy=fast_policy)
    shutil.rmtree(root / "predictors")
    return root


@pytest.fixture
def root(measured, nothing_packaged, tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(result, "FINALISTS", 1)  # one to measure is enough
    return shutil.copytree(measured, tmp_path / "workspace")


def fit(root: Path, *spaces: str):
    return hwbench.fit(list(spaces), workspace=root, networks=4, holdout=4, stored=True)


def search(root: Path, space: str, out: str, **more) -> dict:
    return hwbench.search(space, AMPLE_MS, root / "searches" / out, workspace=root, evaluations=40, **more)


def scale_rows(root: Path, space: str, factor: float) -> None:
    """The table as another profiling run would leave it: other numbers for one space."""
    path = root / "luts" / files.local_name() / "onnxruntime.parquet"
    table, keys = Lut.read(path), {spec.key for spec in distinct_specs(registry.get("space", space))}
    rows = {
        at: {**row, "latency_min_ms": row["latency_min_ms"] * (factor if at[0] in keys else 1.0)}
        for at, row in table.rows.items()
    }
    Lut(path, table.environment, rows).write(path)


def ask(*words: object):
    return CliRunner(env={"COLUMNS": "200"}).invoke(build(), [*map(str, words)], catch_exceptions=False)


def test_the_story_fitting_another_space_replaces_nothing(root):
    first = fit(root, "autoformer-tiny")
    fit(root, "nasbench201")
    assert len(list((root / "predictors").glob("*/*/card.json"))) == 2
    found = search(root, "autoformer-tiny", "first")["search"]
    assert found["certified"] is True
    assert found["predictor"] == first.fingerprint
    assert found["predictors"]["latency_ms"]["spaces"] == ["autoformer-tiny"]


def test_a_space_no_calibration_saw_is_refused_or_uncertified_everywhere(root, fast_policy, monkeypatch):
    fit(root, "nasbench201")
    with pytest.raises(UsageError) as error:
        search(root, "autoformer-tiny", "refused")
    assert "was calibrated on autoformer-tiny; there are some for nasbench201" in str(error.value)
    assert "Run: hwbench profile --space autoformer-tiny" in str(error.value)
    assert "--uncertified" in str(error.value)
    assert not (root / "searches" / "refused").exists()
    found = search(root, "autoformer-tiny", "asked", uncertified=True)
    assert found["search"]["certified"] is False
    assert found["search"]["bound"] == "upper"  # the bound is held all the same
    assert found["search"]["predictors"]["latency_ms"]["certified"] is False
    folder = root / "searches" / "asked"
    summary = hwbench.verify(folder, random=0, workspace=root, policy=fast_policy)
    assert summary["certified"] is False
    hwbench.report(folder, workspace=root)
    for name in ("report.md", "report.html"):
        assert "uncertified upper bound" in (folder / name).read_text()
    told = ask("search", "--space", "autoformer-tiny", "--budget-ms", AMPLE_MS, "--out", folder, "--workspace", root,
               "--evaluations", 40, "--uncertified")  # fmt: skip
    assert "UNCERTIFIED: no calibration saw autoformer-tiny" in told.stdout
    hwbench.sample("autoformer-tiny", 1, out=root / "arch.json")
    told = ask("predict", "--space", "autoformer-tiny", "--arch", root / "arch.json", "--workspace", root)
    assert "calibrated on nasbench201, fitted today, error on autoformer-tiny unknown" in told.stdout
    assert "UNCERTIFIED" in told.stdout
    told = ask("predict", "--space", "autoformer-tiny", "--arch", root / "arch.json", "--workspace", root, "--json")
    assert json.loads(told.stdout.splitlines()[-1])["certified"] is False


def test_one_calibration_of_both_spaces_certifies_both(root):
    both = fit(root, *reversed(SPACES))
    assert both.folder.name.endswith("--autoformer-tiny+nasbench201")
    for space in SPACES:
        assert search(root, space, space)["search"]["certified"] is True
    newer = fit(root, "nasbench201")
    assert search(root, "nasbench201", "later")["search"]["predictor"] == newer.fingerprint  # the newest that saw it
    assert search(root, "autoformer-tiny", "still")["search"]["predictor"] == both.fingerprint


def test_a_table_newer_than_its_predictor_is_said_with_the_command(root):
    fit(root, "autoformer-tiny")
    assert search(root, "autoformer-tiny", "fresh")["search"]["predictors"]["latency_ms"]["stale"] is None
    scale_rows(root, "nasbench201", 1.5)  # another space's rows are none of its business
    assert search(root, "autoformer-tiny", "other")["search"]["predictors"]["latency_ms"]["stale"] is None
    scale_rows(root, "autoformer-tiny", 1.5)
    folder = root / "searches" / "said"
    told = ask("search", "--space", "autoformer-tiny", "--budget-ms", AMPLE_MS, "--out", folder, "--workspace", root,
               "--evaluations", 40)  # fmt: skip
    (line,) = [line for line in told.stdout.splitlines() if "is newer than this predictor" in line]
    assert ask(*line.partition("Run: hwbench ")[2].split()).exit_code == 0
    assert search(root, "autoformer-tiny", "again")["search"]["predictors"]["latency_ms"]["stale"] is None


def test_an_edited_copy_of_the_predictor_is_refused(root, fast_policy):
    fit(root, "autoformer-tiny")
    search(root, "autoformer-tiny", "edited")
    folder = root / "searches" / "edited"
    (card,) = folder.glob("predictors/*/card.json")
    card.write_text(card.read_text().replace('"spaces": [', '"spaces": ["bert", '))
    with pytest.raises(DataError, match="was edited after hwbench wrote it"):
        hwbench.verify(folder, random=0, workspace=root, policy=fast_policy)


def check(folder: Path) -> None:
    """What must hold of a search, its verification and its report, whatever happened before or since."""
    document = json.loads((folder / "search.json").read_text())
    about, space = document["search"], registry.get("space", document["space"])
    card = json.loads((folder / "predictors" / about["predictor"] / "card.json").read_text())
    if about["certified"]:
        assert space.name in card["spaces"]
    part = card["statistics"][about["statistic"]]
    above = part["band_by_space"].get(space.name, part["band"])["above"]
    for told in about["finalists"]:
        assert told["upper_ms"] == pytest.approx(told["latency_ms"] * np.exp(above), rel=1e-9)
    if not (folder / "verification.json").exists():
        return
    summary = json.loads((folder / "verification.json").read_text())
    assert summary["predictor"]["fingerprint"] == about["predictor"]
    assert summary["certified"] == about["certified"]
    if (folder / "report.md").exists():
        text = (folder / "report.md").read_text()
        assert f"predictor fingerprint | {about['predictor']} |" in text
        assert ("uncertified upper bound" in text) == (not about["certified"])
        for told in about["finalists"]:
            assert f"{told['latency_ms']:.3f}" in text or f"{told['latency_ms']:.2f}" in text
            assert f"{told['upper_ms']:.3f}" in text or f"{told['upper_ms']:.2f}" in text


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("profile"), st.sampled_from(SPACES)),
        st.tuples(st.just("fit"), st.sampled_from([(SPACES[0],), (SPACES[1],), SPACES])),
        st.tuples(st.just("search"), st.sampled_from(SPACES), st.booleans()),
        st.tuples(st.just("verify"), st.integers(0, 9)),
        st.tuples(st.just("report"), st.integers(0, 9)),
    ),
    min_size=6,
    max_size=14,
)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_in_whatever_order_steps_are_made_no_certificate_lies(root, measured, fast_policy, tmp_path_factory, steps):
    root = shutil.copytree(measured, tmp_path_factory.mktemp("order") / "workspace")
    seen: set[str] = set()
    searches: list[Path] = []
    for i, step in enumerate([("fit", ("nasbench201",)), *steps]):
        match step:
            case ("profile", space):
                scale_rows(root, space, 1.0 + 0.01 * i)
            case ("fit", chosen):
                fit(root, *chosen)
                seen |= set(chosen)
            case ("search", space, uncertified):
                if space in seen or uncertified:
                    found = search(root, space, str(i), uncertified=uncertified)["search"]
                    assert found["certified"] == (space in seen)
                    searches.append(root / "searches" / str(i))
                else:
                    with pytest.raises(UsageError, match=f"was calibrated on {space}"):
                        search(root, space, str(i), uncertified=uncertified)
            case ("verify", which) if searches:
                hwbench.verify(searches[which % len(searches)], random=0, workspace=root, policy=fast_policy)
            case ("report", which) if searches:
                folder = searches[which % len(searches)]
                if (folder / "verification.json").exists():
                    hwbench.report(folder, workspace=root)
        for folder in searches:
            check(folder)


def test_a_search_of_the_version_before_claims_no_more_than_its_predictor_saw(root, fast_policy):
    """Version 0.1 kept no copy, and called certified whatever predictor lay in the one slot."""
    fit(root, "nasbench201")
    search(root, "autoformer-tiny", "old", uncertified=True)
    folder = root / "searches" / "old"
    shutil.rmtree(folder / "predictors")
    document = json.loads((folder / "search.json").read_text())
    for name in ("predictors", "bound"):
        del document["search"][name]
    document["search"]["certified"] = True
    write_sealed(folder / "search.json", document)
    assert hwbench.verify(folder, random=0, workspace=root, policy=fast_policy)["certified"] is False
    hwbench.report(folder, workspace=root)
    assert "uncertified upper bound" in (folder / "report.md").read_text()
    scale_rows(root, "nasbench201", 1.5)
    fit(root, "nasbench201")
    with pytest.raises(UsageError, match="is gone: it was fitted again since"):
        hwbench.report(folder, workspace=root)


def test_names_of_predictors_depend_on_the_set_of_spaces_alone():
    target = Target("box")
    assert space_latency.predictor_name(target, ["b", "a", "b"]) == space_latency.predictor_name(target, ["a", "b"])
    many = [f"a-space-with-a-long-name-{i}" for i in range(40)]
    assert len(space_latency.predictor_name(target, many)) <= space_latency.LONGEST_NAME
    assert space_latency.predictor_name(target, many) == space_latency.predictor_name(target, many[::-1])
