"""Reports from stored files. Every latency here is invented: the files are stamped so and nothing is measured."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from hwbench.core import registry, schema, stats
from hwbench.core.errors import DataError, UsageError
from hwbench.core.files import fingerprint, read_json, write_json
from hwbench.core.workspace import Workspace
from hwbench.device.agent.environment import Environment
from hwbench.lut import latency as hwbench_latency
from hwbench.lut.table import STATISTICS, Lut
from hwbench.network.spec import OpSpec, Setting
from hwbench.optimize import schema as optimize_schema
from hwbench.space import lowering
from hwbench.space import slots as spaces
from hwbench.space.architectures import Architectures
from hwbench.space.sample import sample
from hwbench.study import evidence, heat_map, provenance, sections, verification, verify, winner_time
from hwbench.study import render as study_render
from hwbench.study import schema as study_schema
from hwbench.study.report import report

INVENTED = "invented for tests"
DEVICE = "invented-cpu"
SETTING = Setting()
ENVIRONMENT = {
    "machine": "x86_64", "cpu_model": "Invented <b>CPU</b> & sons", "cpu_signature": "1-2-3", "isa": ["avx2"], "cores": 2,
    "runtime": "onnxruntime", "runtime_version": "0.0", "system": "Linux", "kernel": INVENTED, "python": "3.11.0",
}  # fmt: skip
DEVICE_FILE = """
schema = 1
name = "invented-cpu"
kind = "x86"
reach = "local"
detected_on = "2000-01-01"
cpu = { model = "Invented", signature = "1-2-3", isa = ["avx2"], cores = 2 }
memory = { total_bytes = 8589934592, caches_bytes = { l2 = 2097152 } }
peaks = { gflops_fp32_1_threads = 100.0, bandwidth_gb_s_1_threads = 20.0 }
"""


def latency(min_ms: float, spread: float = 0.004) -> dict[str, Any]:
    return {
        "latency_min_ms": min_ms, "latency_median_ms": 1.1 * min_ms, "min_spread": spread, "median_spread": 0.12,
        "processes": 3, "samples": 30, "status": "ok", "verdict": "stable", "reason": INVENTED,
    }  # fmt: skip


def lut_row(spec: OpSpec, i: int) -> dict[str, Any]:
    row = {"key": spec.key, "op": spec.op, **asdict(SETTING), **latency(0.1 + 0.01 * i)}
    return {**row, "flops": 1.0, "bytes_moved": 1.0, "parameters": 1.0}


def write_lut(root: Path, specs: list[OpSpec]) -> Path:
    path = root / "luts" / DEVICE / "onnxruntime.parquet"
    rows = {(spec.key, SETTING.key): lut_row(spec, i) for i, spec in enumerate(specs)}
    Lut(path, Environment(ENVIRONMENT), rows).write(path)
    return path


def card_of(space: str, lut_path: Path) -> dict[str, Any]:
    error = asdict(stats.accuracy(np.array([9.0, 11.5, 12.0]), np.array([9.1, 11.0, 12.5])))
    part = {
        "state": {"constant_ms": 1.2345, "coefficients": {"rows_ms": 1.0625, "nodes": -0.03125}},
        "margin": 0.03, "holdout": error, "holdout_by_space": {space: error}, "fitted": error,
        "baselines": {"flops": [1.0, 2.0]},
    }  # fmt: skip
    return {
        "schema": 1, "predictor": "lut_sum", "device": DEVICE, "runtime": "onnxruntime", "setting": asdict(SETTING),
        "spaces": [space], "networks_per_space": {"fit": 4, "holdout": 3}, "seed": 0, "fit_networks": ["a"] * 4,
        "holdout_networks": ["b"] * 3, "statistics": {"min": part, "p50": {**part, "margin": 0.07}},
        "noise": {"min_spread_median": 0.0061, "min_spread_max": 0.0092},
        "lut": {"path": lut_path.name, "sha256": evidence.sha256(lut_path)}, "environment": ENVIRONMENT,
        "hwbench_version": INVENTED, "fitted_at": "2000-01-01T00:00:00+00:00",
        "rebuild": f"hwbench fit --space {space} --networks 4",
    }  # fmt: skip


def write_predictor(folder: Path, card: dict[str, Any]) -> None:
    """The card as version 0.1 stored it, with rows of every op of its space."""
    folder.mkdir(parents=True)
    keys = [spec.key for name in card["spaces"] for spec in spaces.distinct_specs(registry.get("space", name))]
    np.savez(folder / "arrays.npz", op_key=np.array(keys), row_ms=np.ones(len(keys)))
    write_json(folder / "card.json", {**card, "arrays_sha256": evidence.sha256(folder / "arrays.npz")})


def facts(i: int) -> dict[str, Any]:
    return {
        "accuracy": 7.5 - 0.1 * i,
        "latency_ms": 11.0 - 0.1 * i,
        "upper_ms": 11.33 - 0.103 * i,
        "fitness": 7.5,
        "within_budget": True,
    }


def search_document(found: Architectures, card: dict[str, Any], statistic: str, budget_ms: float) -> dict[str, Any]:
    other = "p50" if statistic == "min" else "min"
    about = {
        "space": found.space.name, "budget_ms": budget_ms, "statistic": statistic, "certified": True, "strategy": "evolution",
        "objective": "constrained", "gamma": None, "proxy": "params", "evaluations": 50, "seed": 0, "device": DEVICE,
        "runtime": "onnxruntime", "setting": asdict(SETTING), "predictor": fingerprint(card["statistics"]), "evaluated": 50,
        "feasible": 40, "margin": 0.03, "predictor_folder": "", "space_size": "12345", "hwbench_version": INVENTED,
        "seconds": 0.1, "finalists": [{**facts(i), f"{other}_ms": 12.75} for i in range(len(found))],
        "front": [facts(i) for i in (9, 4, 0)],
    }  # fmt: skip
    return {**found.document(), "search": about}


def verification_rows(found: Architectures, drawn: Architectures, statistic: str) -> list[dict[str, Any]]:
    rows = []
    for i, values in enumerate([*found.values, *drawn.values]):
        truth = latency(10.9 - 0.1 * i if i < len(found) else 8.0 + 0.37 * i)
        at = truth[STATISTICS[statistic]]
        role = "winner" if i == 0 else "finalist" if i < len(found) else "random"
        rows.append(
            {
                **truth, "space": found.space.name, "architecture": json.dumps(values), "role": role, "measured_ms": at,
                "predicted_ms": at * (1.02 if i % 2 else 0.99), "upper_ms": at * 1.05, "plain_sum_ms": 0.9 * at,
                "flops_ms": at * (1.01 if i % 3 else 0.995), "primitive_sum_ms": None, "primitive_calibrated_ms": None,
            }
        )  # fmt: skip
    return rows


def invent(root: Path, space: str = "autoformer-tiny", statistic: str = "min", budget_ms: float = 12.5, skip: int = 0) -> Path:
    """A workspace and a verified search folder in it, with invented numbers; `skip` ops have no row."""
    lut_path = write_lut(root, spaces.distinct_specs(registry.get("space", space))[skip:])
    card = card_of(space, lut_path)
    write_predictor(root / "predictors" / DEVICE / f"onnxruntime-{SETTING.key}", card)
    (root / "devices").mkdir()
    (root / "devices" / f"{DEVICE}.toml").write_text(DEVICE_FILE)
    found, drawn = sample(space, 3, 0), sample(space, 4, 1)
    folder = root / "s1"
    rows = verification_rows(found, drawn, statistic)
    document = search_document(found, card, statistic, budget_ms)
    for told, row in zip(document["search"]["finalists"], rows, strict=False):
        told["latency_ms"] = row["predicted_ms"]
    write_json(folder / "search.json", document)
    trials = [
        {"trial": i, "architecture": genes.tobytes().hex(), "accuracy": 7.5 - 0.1 * i, "latency_ms": 11 - 0.1 * i,
         "upper_ms": 11.33 - 0.103 * i, "fitness": 1.0, "feasible": True}
        for i, genes in enumerate(np.ascontiguousarray(sample(space, 50, 2).population.T))
    ]  # fmt: skip
    schema.write(folder / "trials.parquet", optimize_schema.TRIALS, trials, {"about": INVENTED})
    write_verification(folder, rows, statistic, budget_ms)
    return folder


def kept(rows: list[dict[str, Any]], budget_ms: float) -> dict[str, Any]:
    within = [row["measured_ms"] <= budget_ms for row in rows if row["role"] != "random"]
    return {"winner": within[0], "finalists": sum(within), "of": len(within)}


def write_verification(folder: Path, rows: list[dict[str, Any]], statistic: str, budget_ms: float) -> None:
    schema.write(folder / "verification.parquet", study_schema.VERIFICATION, rows, {"about": INVENTED})
    summary = {
        "schema": 1, "space": rows[0]["space"], "statistic": statistic, "budget_ms": budget_ms, "winner": rows[0],
        "kept": kept(rows, budget_ms), "accuracy": verify.summarise([r for r in rows if r["role"] == "random"]),
        "accuracy_on": "random networks", "noise": hwbench_latency.noise(rows), "verified_at": "2000-01-02T00:00:00+00:00",
    }  # fmt: skip
    write_json(folder / "verification.json", summary)


class Page(HTMLParser):
    """Checks that tags close in order; collects texts and attributes."""

    VOID = {"meta", "img", "br", "link", "wbr", "input", "hr"}

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in self.VOID
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text += data.replace("\u00a0", " ")


def render(root: Path, **named: Any) -> tuple[dict[str, Any], str, str]:
    folder = invent(root, **named)
    done = report(folder, workspace=root)
    return done, Path(done["markdown"]).read_text(), Path(done["html"]).read_text()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str, str]:
    root = tmp_path_factory.mktemp("tiny")
    return root, *render(root)


def plain(markdown: str) -> str:
    return markdown.replace("\\", "")


def test_main_numbers_stand_in_both_files(tiny: tuple[Path, dict[str, Any], str, str]) -> None:
    root, done, markdown, html = tiny
    summary = read_json(root / "s1" / "verification.json", "verification")
    winner = summary["winner"]
    wanted = [f"{summary['budget_ms']:.3f} ms"]
    wanted += [
        f"{winner[name]:.3f}" for name in ("predicted_ms", "upper_ms", "measured_ms", "latency_min_ms", "latency_median_ms")
    ]
    wanted += [f"{100 * winner['min_spread']:.2f} %", f"{summary['kept']['finalists']} of {summary['kept']['of']} finalists"]
    for found in summary["accuracy"].values():
        wanted += [f"{100 * found[name]:.2f}" for name in ("mean_abs_error", "bias", "p95_abs_error", "max_abs_error")]
        wanted += [f"{100 * found['within_5']:.0f}", f"{found['kendall_tau']:.3f}", str(found["n"])]
    wanted += [
        f"{100 * summary['noise'][name]:.2f}" for name in ("min_spread_median", "min_spread_max", "median_spread_median")
    ]
    for row in done["table"]:
        wanted += [f"{row[name]:.3f}" for name in ("proxy", "predicted_ms", "upper_ms", "measured_min_ms", "measured_p50_ms")]
    for text in (plain(markdown), Page(html).text):
        assert [number for number in wanted if number not in text] == []
    assert "the budget was kept" in markdown
    assert "1.2345" in html
    assert "1.0625" in html


def test_both_files_hold_the_same_numbers(tiny: tuple[Path, dict[str, Any], str, str]) -> None:
    _, _, markdown, html = tiny
    body = Page(html).text.partition("hwbench report")[2]
    numbers = re.compile(r"\d+\.\d+")
    assert set(numbers.findall(body)) == set(numbers.findall(plain(markdown)))


def test_table_is_plain_values(tiny: tuple[Path, dict[str, Any], str, str]) -> None:
    _, done, _, _ = tiny
    assert [row["network"] for row in done["table"]] == ["winner", "finalist 2", "finalist 3"]
    assert json.loads(json.dumps(done)) == done
    assert done["table"][0]["kept"] is True
    assert done["table"][0]["error_percent"] == pytest.approx(-1.0)


def test_html_needs_no_network(tiny: tuple[Path, dict[str, Any], str, str]) -> None:
    _, done, _, html = tiny
    page = Page(html)
    references = [attrs[name] or "" for _, attrs in page.tags for name in ("src", "href", "srcset", "data") if name in attrs]
    assert all(ref.startswith("#") for ref in references)
    assert not {"link", "iframe", "object", "img"} & {tag for tag, _ in page.tags}
    charts = [attrs["data-chart"] for _, attrs in page.tags if "data-chart" in attrs]
    assert charts == [Path(path).stem for path in done["figures"]]
    assert len(charts) == 8
    for text in [*(Path(path).read_text() for path in done["figures"])]:
        assert re.findall(r"(?:src|href)\s*=\s*[\"']?\s*(?:https?:)?//", text) == []
        assert re.findall(r"url\(\s*[\"']?(?:https?:)?//|@import", text) == []


def test_figures_are_svg_without_dates(tiny: tuple[Path, dict[str, Any], str, str]) -> None:
    _, done, markdown, _ = tiny
    assert [Path(path).name for path in done["figures"]] == [
        f"{name}.svg"
        for name in (
            "time-by-kind", "time-by-part", "front", "front-near", "agreement", "errors", "table", "table-2",
        )
    ]  # fmt: skip
    for path in done["figures"]:
        text = Path(path).read_text()
        ElementTree.fromstring(text)
        assert "<metadata" not in text
        assert f"](figures/{Path(path).name})" in markdown


def test_strings_of_files_are_escaped(tiny: tuple[Path, dict[str, Any], str, str]) -> None:
    _, _, markdown, html = tiny
    assert "<b>CPU</b>" not in html + markdown
    assert "Invented &lt;b&gt;CPU&lt;/b&gt; &amp; sons" in html
    assert ENVIRONMENT["cpu_model"] in Page(html).text


def test_two_renders_are_equal(tiny: tuple[Path, dict[str, Any], str, str], tmp_path: Path) -> None:
    root, done, _, _ = tiny
    again = report(root / "s1", tmp_path / "elsewhere", root)
    for name in ("markdown", "html"):
        assert Path(again[name]).read_bytes() == Path(done[name]).read_bytes()
    for mine, theirs in zip(done["figures"], again["figures"], strict=True):
        assert Path(mine).read_bytes() == Path(theirs).read_bytes()


def test_says_how_calibrated_flops_compare(tiny: tuple[Path, dict[str, Any], str, str], tmp_path: Path) -> None:
    assert "calibrated FLOPs are as good or better: mean error 0.75 % against 1.50 %" in tiny[2]
    folder = invent(tmp_path)
    rows = schema.read(folder / "verification.parquet", study_schema.VERIFICATION)[0].to_pylist()
    rows.sort(key=lambda row: ("winner", "finalist", "random").index(row["role"]))
    for row in rows:
        row["flops_ms"] = 1.2 * row["measured_ms"]
    write_verification(folder, rows, "min", 12.5)
    assert "calibrated FLOPs are less accurate: mean error 20.00 % against 1.50 %" in _text(folder, tmp_path)


def test_p50_search_with_a_broken_budget_and_missing_rows(tmp_path: Path) -> None:
    done, markdown, html = render(tmp_path, space="bert", statistic="p50", budget_ms=11.0, skip=1)
    assert done["table"][0]["kept"] is False
    assert "the budget was broken, missed by 0.990 ms (9.00 %)" in markdown
    assert 'class="card broken"' in html
    assert "Its min was measured at 10.900 ± 0.044 ms and predicted at 12.750 ms" in markdown
    assert "(1 more have no latency)" in markdown
    assert "hwbench search --space bert --budget-ms 11.0 --statistic p50" in plain(markdown)


def test_networks_that_are_not_stable_are_counted_by_word(tmp_path: Path) -> None:
    folder = invent(tmp_path)
    rows = schema.read(folder / "verification.parquet", study_schema.VERIFICATION)[0].to_pylist()
    assert "verified networks are not stable" not in plain(report_of(folder, tmp_path))
    for row, word in zip(rows, ("noisy", "shifted", "noisy"), strict=False):
        row["verdict"] = word
    ordered = sorted(rows, key=lambda row: ["winner", "finalist", "random"].index(row["role"]))
    write_verification(folder, ordered, "min", 12.5)
    markdown = plain(report_of(folder, tmp_path))
    assert f"3 of {len(rows)} verified networks are not stable (" in markdown
    assert "2 noisy" in markdown
    assert "1 shifted" in markdown


def test_peaks_measured_while_disturbed_are_not_cited(tmp_path: Path) -> None:
    folder = invent(tmp_path)
    assert "100 GFLOP/s with 1 thread" in plain(report_of(folder, tmp_path))
    path = tmp_path / "devices" / f"{DEVICE}.toml"
    path.write_text(f'{DEVICE_FILE}disturbed = {{ gflops_fp32_1_threads = "too hot", bandwidth_gb_s_1_threads = "too hot" }}\n')
    markdown = plain(report_of(folder, tmp_path))
    assert "100 GFLOP/s with 1 thread" not in markdown
    assert "% of the peak above" not in markdown
    assert "measured while disturbed: too hot" in markdown


def report_of(folder: Path, root: Path) -> str:
    report(folder, workspace=root)
    return (folder / "report.md").read_text()


def test_heat_maps_mark_what_is_not_stable() -> None:
    specs = [OpSpec.of("ffn_block", tokens=9, dim=64, hidden=h, activation="gelu", norm="pre") for h in (128, 192, 256)]
    words = ("stable", "noisy", "throttled")
    rows: dict[OpSpec, Any] = {s: {**lut_row(s, 1), "verdict": word} for s, word in zip(specs, words, strict=True)}
    (drawn,) = heat_map.maps_of(rows, "ffn_block", "hidden")
    assert [drawn.cells[x, 64][1] for x in drawn.xs] == [False, True, True]


def test_heat_maps_leave_missing_cells_out() -> None:
    specs = [
        OpSpec.of("ffn_block", tokens=9, dim=d, hidden=h, activation="gelu", norm="pre")
        for d, h in ((64, 128), (96, 192), (96, 384))
    ]
    rows: dict[OpSpec, Any] = dict(zip(specs, [lut_row(specs[0], 1), None, lut_row(specs[2], 2)], strict=True))
    (drawn,) = heat_map.maps_of(rows, "ffn_block", "hidden")
    assert (drawn.x_name, list(drawn.xs), list(drawn.ys)) == ("hidden / width", [2.0, 4.0], [64, 96])
    assert set(drawn.cells) == {(2.0, 64), (4.0, 96)}


def test_heat_maps_split_what_width_and_heads_do_not_settle() -> None:
    def spec(tokens: int, heads: int) -> OpSpec:
        return OpSpec.of("attention_block", tokens=tokens, dim=64, heads=heads, head_dim=64 // heads, norm="pre", qkv="fused")

    rows: dict[OpSpec, Any] = {spec(t, h): lut_row(spec(t, h), t) for t in (9, 16) for h in (1, 2)}
    maps = heat_map.maps_of(rows, "attention_block", "heads")
    assert [drawn.title for drawn in maps] == ["attention block, tokens 9, min [ms]", "attention block, tokens 16, min [ms]"]
    assert all(list(drawn.xs) == [1, 2] and len(drawn.cells) == 2 for drawn in maps)


@pytest.mark.parametrize("missing", ["verification.json", "verification.parquet"])
def test_unverified_search_is_refused(tmp_path: Path, missing: str) -> None:
    folder = invent(tmp_path)
    (folder / missing).unlink()
    with pytest.raises(UsageError, match=rf"no {missing}.*Run: hwbench verify {folder}"):
        report(folder, workspace=tmp_path)
    assert not (folder / "report.html").exists()


def test_verification_of_another_search_is_refused(tmp_path: Path) -> None:
    folder = invent(tmp_path)
    document = read_json(folder / "search.json", "search")
    document["architectures"][0] = sample("autoformer-tiny", 1, 9).values[0]
    write_json(folder / "search.json", document)
    with pytest.raises(UsageError, match=r"of another search\. Run: hwbench verify"):
        report(folder, workspace=tmp_path)


def _refit(folder: Path, root: Path) -> None:
    path = next(root.glob("predictors/*/*/card.json"))
    card = read_json(path, "card")
    card["statistics"]["min"]["margin"] = 0.5
    write_json(path, card)


def _reprofile(folder: Path, root: Path) -> None:
    write_lut(root, spaces.distinct_specs(registry.get("space", "autoformer-tiny"))[1:])


def _lose_device(folder: Path, root: Path) -> None:
    (root / "devices" / f"{DEVICE}.toml").unlink()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_reprofile, "The table has changed since the predictor was fitted"),
        (_lose_device, "no device file (hwbench device detect)"),
    ],
)
def test_files_that_changed_are_told(tmp_path: Path, change: Callable[[Path, Path], None], says: str) -> None:
    folder = invent(tmp_path)
    change(folder, tmp_path)
    assert says in _text(folder, tmp_path)


def test_a_report_never_mixes_two_predictors(tmp_path: Path) -> None:
    folder = invent(tmp_path)
    document = read_json(folder / "search.json", "search")
    document["search"]["finalists"][0]["latency_ms"] *= 1.01
    write_json(folder / "search.json", document)
    with pytest.raises(UsageError, match=r"asked another predictor than the search did\. Run: hwbench verify"):
        report(folder, workspace=tmp_path)
    document["search"]["finalists"][0]["latency_ms"] /= 1.01
    write_json(folder / "search.json", document)
    _refit(folder, tmp_path)
    with pytest.raises(UsageError, match=r"is gone: it was fitted again since.*Search again with another --out\."):
        report(folder, workspace=tmp_path)


def test_a_space_no_calibration_saw_is_called_uncertified(tmp_path: Path) -> None:
    folder = invent(tmp_path)
    path = next(tmp_path.glob("predictors/*/*/card.json"))
    write_json(path, {**read_json(path, "card"), "spaces": ["bert"]})  # the search still claims to be certified
    text = report_of(folder, tmp_path)
    assert "with the uncertified upper bound of its latency" in text
    assert "Uncertified: the predictor was calibrated on bert, not on autoformer-tiny" in text
    assert "--uncertified" in text


def test_files_of_earlier_steps_are_needed(tmp_path: Path) -> None:
    folder = invent(tmp_path)
    card = next(tmp_path.glob("predictors/*/*/card.json"))
    write_json(card, {"schema": 99})
    with pytest.raises(DataError, match="update hwbench"):
        report(folder, workspace=tmp_path)
    card.unlink()
    with pytest.raises(UsageError, match="is gone"):
        report(folder, workspace=tmp_path)
    with pytest.raises(UsageError, match="no search result"):
        report(tmp_path / "nothing", workspace=tmp_path)


def test_numbers_as_text() -> None:
    assert [study_render.ms(v) for v in (123.456, 12.3456, 0.04321, None)] == [
        "123.46",
        "12.346",
        "0.0432",
        study_render.MISSING,
    ]
    assert [study_render.percent(v) for v in (0.12345, -1e-6, None)] == ["12.35", "0.00", study_render.MISSING]
    assert study_render.percent(0.01, "+.2f") == "+1.00"


def test_long_commands_are_cut_before_an_option() -> None:
    words = ["hwbench", *(f"--option{i}" if i % 2 else f"value{i}" for i in range(1, 30))]
    lines = provenance._lines(words).splitlines()
    assert len(lines) > 1
    assert all(len(line) <= 104 for line in lines)
    assert all(line.startswith("    --") for line in lines[1:])
    assert " ".join(" ".join(lines).replace("\\", "").split()) == " ".join(words)


def _text(folder: Path, root: Path) -> str:
    """The report's sentences and captions, without drawing a figure."""
    found = evidence.read(folder, Workspace.at(root), verification.read(folder, ""))
    captions = [block.text for _, blocks in (provenance.machine(found), provenance.made(found)) for block in blocks]
    return "\n".join([*captions, *sections._doubts(found), sections._comparison(found, "calibrated block sum")])


def test_further_limits_are_reported_as_they_were_checked(tmp_path: Path) -> None:
    folder = invent(tmp_path)
    assert "All limits of the search" not in Path(report(folder, workspace=tmp_path)["markdown"]).read_text()
    summary = read_json(folder / "verification.json", "verification")
    names = ("name", "most", "how", "winner", "kept", "finalists", "of")
    found = [
        ("latency_ms", 12.5, "measured here (min)", 10.9, True, 3, 3),
        ("params_m", 6.0, "counted", 6.25, False, 1, 3),
        ("latency_ms@pi4", 90.0, "not checked: gone", None, None, None, 0),
    ]
    summary["limits"] = [dict(zip(names, values, strict=True)) for values in found]
    write_json(folder / "verification.json", summary)
    text = plain(Path(report(folder, workspace=tmp_path)["markdown"]).read_text())
    assert "| params_m | no, 4.17 % over | 6.25 | 6 | 1 of 3 | counted |" in text
    dash = study_render.MISSING
    assert f"| latency_ms@pi4 | {dash} | {dash} | 90 | {dash} | not checked: gone |" in text
    tiles = dict(zip(*(line.strip("| ").split(" | ") for line in text.splitlines()[6:9:2]), strict=True))
    assert tiles["budget kept"] == "12.500 ms"
    assert tiles["params_m broken"] == "6.25"
    assert "limit 6: missed by 0.250 (4.17 %), counted" in text


def test_the_title_holds_every_limit(tmp_path: Path) -> None:
    folder = invent(tmp_path)
    document = read_json(folder / "search.json", "search")
    document["search"]["limits"] = {"params_m": 6.0, "latency_ms@pi4": 90.0}
    for each in (*document["search"]["finalists"], *document["search"]["front"]):
        each |= {"params_m": 5.0, "latency_ms@pi4": 80.0}
    write_json(folder / "search.json", document)
    done = report(folder, workspace=tmp_path)
    title = "autoformer-tiny within 12.5 ms (min), params_m ≤ 6, latency_ms@pi4 ≤ 90"
    assert plain(Path(done["markdown"]).read_text()).startswith(f"# {title}\n")
    assert f"<title>{title}</title>" in Path(done["html"]).read_text()


@pytest.mark.parametrize(
    ("budget_ms", "tile", "cell"),
    [
        (12.5, "1.60 ms (12.8 %) to spare; 3 of 3 finalists within", "yes, 12.8 % below"),
        (10.9, "0.00 ms (0.00 %) to spare; 3 of 3 finalists within", "yes, 0.00 % below"),
        (10.8, "missed by 0.100 ms (0.926 %); 2 of 3 finalists within", "no, 0.926 % over"),
        (10.8999999, "missed by < 0.001 ms (< 0.001 %); 2 of 3 finalists within", "no, < 0.001 % over"),
        (5.0, "missed by 5.90 ms (118 %); 0 of 3 finalists within", "no, 118 % over"),
    ],
)
def test_how_far_the_budget_was_kept_or_missed(tmp_path: Path, budget_ms: float, tile: str, cell: str) -> None:
    _, markdown, html = render(tmp_path, budget_ms=budget_ms)
    assert tile in unescape(plain(markdown))
    assert tile in Page(html).text
    (row,) = (line for line in unescape(markdown).splitlines() if line.startswith("| winner | "))
    assert row.split(" | ")[1] == cell, "the verdict stands beside the name: in sight on a phone"


def test_the_winners_time_adds_up_to_its_prediction(tmp_path: Path) -> None:
    folder = invent(tmp_path, skip=1)  # a block without a row: the predictor tells what it adds
    found = evidence.read(folder, Workspace.at(tmp_path), verification.read(folder, ""))
    predicted_ms = found.finalists[0]["predicted_ms"]
    _, (words, picture, table) = winner_time.section(found.chosen, found.result.networks, "min", predicted_ms)
    *parts, total = table.rows
    assert total[0] == "predicted latency"
    assert [float(total[i]) for i in (2, 3)] == [pytest.approx(predicted_ms, abs=1e-3), 100]
    assert sum(float(row[2]) for row in parts) == pytest.approx(predicted_ms, abs=0.005)
    assert sum(float(row[3]) for row in parts) == pytest.approx(100, abs=0.5)
    assert parts[-1][0] == "calibration"
    rows_ms, depth = found.lut.values(SETTING), json.loads(found.finalists[0]["architecture"])["depth"]
    counts = lowering.lower(found.result.networks.space, found.result.networks.population[:, 0]).counts()
    for name in ("attention block", "ffn block"):
        (row,) = (row for row in parts if row[0] == name)
        mine = {spec: n for spec, n in counts.items() if spec.op == name.replace(" ", "_")}
        assert row[1] == str(depth) == str(sum(mine.values()))
        if all(spec.key in rows_ms for spec in mine):
            assert float(row[2]) == pytest.approx(sum(n * rows_ms[spec.key] for spec, n in mine.items()), abs=6e-4)
    assert words.text.startswith(
        f"Of the predicted {predicted_ms:.3f} ms, {parts[0][0]} takes {parts[0][3]} %, in {depth} runs."
    )
    assert [panel.name for panel in picture.panels] == ["time-by-kind", "time-by-part"]
    assert ">layer0<" in picture.panels[1].svg


def test_trials_without_a_score_are_left_out_of_the_picture(tmp_path: Path) -> None:
    folder = invent(tmp_path)
    rows = schema.read(folder / "trials.parquet", optimize_schema.TRIALS)[0].to_pylist()
    rows[7].update(accuracy=None, fitness=None, feasible=False)
    schema.write(folder / "trials.parquet", optimize_schema.TRIALS, rows, {"about": INVENTED})
    assert "all 49 scored trials" in Path(report(folder, workspace=tmp_path)["markdown"]).read_text()
