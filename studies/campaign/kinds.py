"""What hwbench reads, and how it reads it: each kind of file with a reader that answers what the file says."""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hwbench
from hwbench.core import registry
from hwbench.core.files import read_json, write_json
from studies.campaign.jobs import QUICK, ROOT, SPACE

VERSION_0_1 = "tests/assets/workspace-0.1"
"""A workspace that version 0.1 wrote."""
SCORE = "naswot"


@dataclass(frozen=True)
class Kind:
    """A file, and how it is read."""

    name: str
    folder: str
    """Of the campaign's own, which a reader is given a copy of."""
    file: str
    """A pattern in it."""
    read: Callable[[Path, Path], Any]
    """(folder, file) -> what the file says; a frozenset where what is bad may be left out."""
    own: bool = False
    """People write it: another answer to an edit is right."""


def _card(folder: Path, file: Path) -> Any:
    from hwbench.space.sample import sample

    found = hwbench.predict(SPACE, sample(SPACE, 4, seed=0).values, workspace=folder)
    return str(found)


def _table(folder: Path, file: Path) -> Any:
    from hwbench.lut.table import Lut

    found = Lut.read(file)
    return sorted(map(str, found.rows.items())), str(found.environment)


def _journal(folder: Path, file: Path) -> Any:
    from hwbench.lut.journal import Journal, journal_path

    journal = Journal(journal_path(file.with_name("onnxruntime.parquet")))
    with journal.writer():  # sets bad lines aside
        pass
    return frozenset(Counter(map(str, journal.read())).items())


def _environments(folder: Path, file: Path) -> Any:
    from hwbench.lut.journal import Journal, journal_path

    journal = Journal(journal_path(file.with_name("onnxruntime.parquet")))
    list(journal.matching())  # whether each sample's is there
    return sorted((key, str(environment)) for key, environment in journal.environments().items())


def _device(folder: Path, file: Path) -> Any:
    from hwbench.device import files

    return str(files.read(file))


def _search(folder: Path, file: Path) -> Any:
    found = hwbench.search(
        SPACE, limits={"params_m": 6}, out=folder / "out", workspace=folder, accuracy=f"{folder / 'mine.py'}:evaluate",
        evaluations=60, strategy="evolution",
    )  # fmt: skip
    return str({**found, "search": {k: v for k, v in found["search"].items() if k != "seconds"}})


def _result(folder: Path, file: Path) -> Any:
    from hwbench.optimize.result import SearchResult

    return str(SearchResult.read(folder / "out", SPACE).document())


def _architectures(folder: Path, file: Path) -> Any:
    from hwbench.space import architectures

    return architectures.read(file, SPACE).population.tobytes()


def _benchmark(folder: Path, file: Path) -> Any:
    place = (folder / "tables").rename(folder / uuid.uuid4().hex)  # what was read of a folder is kept
    rows = registry.make("benchmark", "nasbench201-cifar10").read(place)
    return rows.fingerprint(["chip"])


def _known(folder: Path, file: Path) -> Any:
    from hwbench.accuracy.known_table import KnownTable

    return KnownTable.read(registry.get("space", SPACE), f"{file}:top1").rows.accuracy.tobytes()


def _runs(folder: Path, file: Path) -> Any:
    from hwbench.study.validate import read_log

    return frozenset(map(str, read_log(file).items()))  # a run that is missing is run again


def _transfer(folder: Path, file: Path) -> Any:
    found = hwbench.transfer(folder / "known.parquet", folder / "measured.parquet", list("abcd"), folder / "predicted.parquet")
    return (folder / "predicted.parquet").read_bytes(), str(found)


def _proven(folder: Path, file: Path) -> Any:
    """A verified search, as its report reads it."""
    from hwbench.core.workspace import Workspace
    from hwbench.study import evidence, verification

    place = folder / "searches" / "verified"
    found = evidence.read(place, Workspace.at(folder), verification.read(place, ""))
    return str(found.verification), str(found.finalists), str(found.random), str(found.trials)


def _networks(folder: Path, file: Path) -> Any:
    from hwbench.lut.networks import read_networks

    return str(read_networks(file))


def _scores(folder: Path, file: Path) -> Any:
    return str(hwbench.score(SPACE, folder / "few.json", SCORE, workspace=folder)["proxies"][SCORE]["scores"])


def _measured(folder: Path, file: Path) -> Any:
    """As `measure --against FILE.json` reads it."""
    from hwbench.core.workspace import Workspace
    from hwbench.lut import model_history

    now, place = read_json(folder / "now.json", "measurement"), Workspace.at(folder)
    return str(model_history.compare(model_history.from_file(file, model_history.identity(now, place), place), now))


def _measurements(folder: Path, file: Path) -> Any:
    """As `measure --against LAST` reads it."""
    from hwbench.core.workspace import Workspace
    from hwbench.lut import model_history

    now, place = read_json(folder / "now.json", "measurement"), Workspace.at(folder)
    before = model_history.last(model_history.identity(now, place), place)
    return before and str(model_history.compare(before, now))


def _model(folder: Path, file: Path) -> Any:
    """As `predict MODEL.onnx` reads it."""
    from hwbench.profiler import kernel_detection

    return str(kernel_detection.detect(file)), str(hwbench.peak_memory(file))


def _compressed(folder: Path, file: Path) -> Any:
    """The same command again, and its table."""
    from hwbench.profiler.policy import Policy
    from hwbench.study import compress_report
    from hwbench.study.compress import Effort

    policy = Policy(**QUICK)
    found = hwbench.compress(
        folder / "model", folder / "train.tsv", folder / "dev.tsv", test=folder / "test.tsv", out=folder / "out",
        budget="50x", workspace=folder, space_cost="macs_m", effort=Effort(2, 1, 14, 2, policy, policy, policy),
    )  # fmt: skip
    return str(compress_report.rows(found)), compress_report.budget_of(found)


def _site(folder: Path, file: Path) -> Any:
    """The pages of one study, of those that stored results are on."""
    from hwbench.study import site, site_pages

    made = site.Site(folder / "site")
    study = site.Study.of(folder / "reports" / file.relative_to(folder / "reports").parts[0])
    site._write_study(made, study, folder / "reports")
    for write in (site_pages.runtimes, site_pages.strategies, site_pages.proxies):
        write(made, [study])
    return {name: (made.out / name).read_bytes() for name in made.written}


KINDS = (
    Kind("trials.jsonl", "search-whole", "out/trials.jsonl", _search),
    Kind("settings.json", "search-whole", "out/settings.json", _search),
    Kind("accuracies.jsonl", "search-whole", "out/accuracies.jsonl", _search),
    Kind("search.json", "search-whole", "out/search.json", _result),
    Kind("card.json", "fit-whole", "predictors/*/*/card.json", _card),
    Kind("arrays.npz", "fit-whole", "predictors/*/*/arrays.npz", _card),
    Kind("LUT .parquet", "profile-whole", "luts/*/onnxruntime.parquet", _table),
    Kind("samples.jsonl", "profile-whole", "luts/*/onnxruntime.samples.jsonl", _journal),
    Kind("environments.json", "profile-whole", "luts/*/*environments.json", _environments),
    Kind("device .toml", "profile-whole", "devices/*.toml", _device, own=True),
    Kind("architectures .json", "known", "architectures.json", _architectures, own=True),
    Kind("own table .csv", "known", "known.csv", _known, own=True),
    Kind("own table .parquet", "transfer-whole", "known.parquet", _transfer, own=True),
    Kind("benchmark table .parquet", "validate-whole", "tables/nasbench201/accuracy.parquet", _benchmark, own=True),
    Kind("runs.jsonl", "validate-whole", "out/runs.jsonl", _runs),
    Kind("networks .parquet", "fit-whole", "luts/*/*.networks.parquet", _networks),
    Kind("verification.json", "proven", "searches/verified/verification.json", _proven),
    Kind("verification.parquet", "proven", "searches/verified/verification.parquet", _proven),
    Kind("trials.parquet", "proven", "searches/verified/trials.parquet", _proven),
    Kind("scores .jsonl", "known", "scores/*/*.jsonl", _scores),
    Kind("scored architectures .json", "known", "few.json", _scores, own=True),
    Kind("measured .json", "measured", "before.json", _measured, own=True),
    Kind("measurements .jsonl", "measured", "measurements/*/*.jsonl", _measurements),
    Kind("model .onnx", "measured", "model.onnx", _model, own=True),
    Kind("compress.json", "compress-whole", "out/compress.json", _compressed),
    Kind("settings of compress", "compress-whole", "out/settings.json", _compressed),
    Kind("sentences .tsv", "compress-whole", "dev.tsv", _compressed, own=True),
    Kind("site: compare.json", "reported", "reports/targets-*/compare.json", _site, own=True),
    Kind("site: summary.json", "reported", "reports/search-*/*/summary.json", _site, own=True),
    Kind("site: agreement.json", "reported", "reports/proxies-*/stages/agreement.json", _site, own=True),
    Kind("site: study.json", "reported", "reports/proxies-*/study.json", _site, own=True),
    Kind("site: search.json", "reported", "reports/found-*/search.json", _site, own=True),
    Kind("site: trials.parquet", "reported", "reports/found-*/trials.parquet", _site, own=True),
    Kind("site: page .md", "reported", "reports/trust-*/trust.md", _site, own=True),
)


def prepare(base: Path) -> None:
    """Files that no job writes."""
    prepare_known(base / "known")
    hwbench.score(SPACE, base / "known" / "few.json", SCORE, workspace=base / "known")
    _prepare_proven(base / "proven")
    _prepare_reported(base / "reported", base / "search-whole" / "out")
    _prepare_measured(base)


def prepare_known(folder: Path) -> None:
    """Lists of architectures, and accuracies of one."""
    from hwbench.core.files import write_json
    from hwbench.space.sample import sample

    folder.mkdir()
    drawn = sample(SPACE, 40, seed=1)
    write_json(folder / "architectures.json", drawn.document())
    networks = drawn.document()["architectures"]
    names = sorted(networks[0])
    rows = [",".join([*(f'"{each[name]}"' for name in names), f"{60 + at / 10}"]) for at, each in enumerate(networks)]
    (folder / "known.csv").write_text("\n".join([",".join([*names, "top1"]), *rows]) + "\n")
    write_json(folder / "few.json", sample(SPACE, 3, seed=2).document())


def _prepare_proven(folder: Path) -> None:
    """A verified search of version 0.1, sealed as this version does."""
    from hwbench.core import schema
    from hwbench.optimize import schema as optimize_schema
    from hwbench.study import schema as study_schema
    from hwbench.study import verification

    shutil.copytree(ROOT / VERSION_0_1, folder)
    place = folder / "searches" / "verified"
    verification.write(place, verification.read(place, "") | {"schema": verification.VERSION})
    for name, kind in (("verification", study_schema.VERIFICATION), ("trials", optimize_schema.TRIALS)):
        rows, footer = schema.read(place / f"{name}.parquet", kind)
        facts: dict[str, Any] = {key: footer[key] for key in ("settings", "statistic") if key in footer}
        schema.write(place / f"{name}.parquet", kind, rows.to_pylist(), facts)


def _prepare_reported(folder: Path, found: Path) -> None:
    """Parts of our own reports, and a search."""
    for name in (
        "targets-2026-11-17/compare.json", "search-2026-11-17/known/summary.json", "proxies-2026-11-18/stages/agreement.json",
        "proxies-2026-11-18/study.json", "trust-2026-11-16/trust.md",
    ):  # fmt: skip
        path = folder / "reports" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "reports" / name, path)
        (folder / "reports" / Path(name).parts[0] / "README.md").write_text("# A study\n")
    shutil.copytree(found, folder / "reports" / "found-2026-11-19")


def _prepare_measured(base: Path) -> None:
    """A model of one block, measured twice."""
    from hwbench.profiler.policy import Policy
    from hwbench.space.sample import sample

    folder = Path(shutil.copytree(base / "common", base / "measured"))
    write_json(folder / "one.json", sample(SPACE, 1, seed=3).document())
    hwbench.export(SPACE, folder / "one.json", folder / "model.onnx")
    for name in ("before", "now"):
        write_json(folder / f"{name}.json", hwbench.measure(folder / "model.onnx", workspace=folder, policy=Policy(**QUICK))[0])
