"""Pages of a site that lay things side by side: devices, runtimes on a device, strategies, training-free scores.

Each is made of what is stored: tables and cards of predictors, compare.json, summaries of `hwbench validate`, the stage that
says how scores agree with accuracies. A row that compares says whether the difference is beyond noise, and what makes it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hwbench.core import registry, schema
from hwbench.core.command import command
from hwbench.core.errors import HwbenchError
from hwbench.core.progress import note
from hwbench.core.workspace import Workspace
from hwbench.device import files as devices_files
from hwbench.device.files import Device
from hwbench.lut import schema as lut_schema
from hwbench.predictor import card as cards
from hwbench.predictor.known import Known, known_of, stated
from hwbench.study import charts, stored
from hwbench.study.compare_runtimes import ALONE, CLEARLY
from hwbench.study.page import Interactive
from hwbench.study.render import MISSING, NO_NUMBERS, Block, Panel, Section, ms, percent

if TYPE_CHECKING:
    from hwbench.study.site import Site, Study

T = TypeVar("T")

LUT_COLUMNS = (
    "key", "dtype", "batch", "threads", "scenario", "status", "verdict", "latency_min_ms", "latency_median_ms", "min_spread",
    "median_spread", "processes", "samples", "instructions",
)  # fmt: skip
"""Of a table's rows, on the page of a device."""
LEADS = {CLEARLY: "beyond noise", ALONE: "no other runs it"}
"""How a runtime leads -> in the words of the pages."""
LEAST_MISSING = 0.001
"""Percent: a logarithmic axis has no 0."""


def devices(made: Site, place: Workspace, studies: Sequence[Study]) -> None:
    """The list of devices, and a page of each."""
    rows, pages = [], []
    for path in devices_files.files(place):
        device = devices_files.read(path)
        known = known_of(device, place)
        name = f"devices/{device.name}.html"
        mentions = [
            study
            for study in studies
            if any(device.name in path.read_text(encoding="utf-8", errors="replace") for path in study.documents)
        ]
        _device(made, name, device, known, place, mentions)
        tables = ", ".join(f"{table.runtime} {table.rows}" for table in known.tables)
        rows.append(
            (device.name, device.kind, _words_of(device), tables or MISSING, str(len(known.predictors)), str(len(mentions)))
        )
        pages.append((name, device.name, _words_of(device)))
        made.find(device.name, name, "device", " ".join([_words_of(device), *known.told(), *_anywhere(known)]))
    head = ("device", "kind", "what it is", "table rows, measured", "predictors", "studies")
    caption = "Every device a file describes: measured here, measured by others, or known by its data sheet only."
    made.add("devices.html", "Devices", f"{len(rows)} devices and what is known of each", [
        ("All devices", [Block("table", caption, head, rows, 4)]), ("Their pages", [Block("links", rows=pages)]),
    ])  # fmt: skip


def _anywhere(known: Known) -> list[str]:
    """What can be asked wherever one is: a site says nothing of the machine it was built on."""
    return [line for line in known.asked() if line.startswith(("search", "limit", "predict"))]


def _words_of(device: Device) -> str:
    return device.cpu_model + (f", {device.cores} cores" if device.cores else "")


def _device(made: Site, name: str, device: Device, known: Known, place: Workspace, studies: Sequence[Study]) -> None:
    facts = [("model", device.cpu_model), ("kind", device.kind), ("reached", device.reach), ("written on", device.detected_on)]
    facts += [("cores", str(device.cores))] if device.cores else []
    facts += [(f"peak, {peak}", f"{value:g}" + (" (published)" if peak.startswith("stated_") or device.gpu else " (measured)"))
              for peak, value in device.undisturbed_peaks.items()]  # fmt: skip
    facts += [("known", line) for line in known.told()] + [("can be asked", line) for line in _anywhere(known)]
    sections: list[Section] = [
        ("What is known", [Block("table", f"devices/{device.path.name}", ("property", "value"), facts, NO_NUMBERS)])
    ]
    predictors = list(_predictors(device, place))
    if predictors:
        head = ("predictor", "how", "calibrated on", "fitted", "mean error, predicted against measured [%]", "coverage [%]")
        caption = "Errors on data the predictor has not seen, as its card states them; coverage is that of its 90 % interval."
        told = [row for row, _ in predictors]
        sections.append(("Predictors", [Block("table", caption, head, told, 4, commands=[again for _, again in predictors])]))
    tables: dict[str, Mapping[str, Sequence[Any]]] = {}
    for table in known.tables:
        rows = schema.read(Path(table.file), lut_schema.LUT)[0]
        columns = {column: rows.column(column).to_pylist() for column in LUT_COLUMNS}
        tables[f"lut-{table.runtime}"] = {
            column: values for column, values in columns.items() if any(v is not None for v in values)
        }
        again = command("profile", space="SPACE", device=device.name, runtime=table.runtime)
        file = f"luts/{device.name}/{table.runtime}.parquet"
        caption = f"{table.rows} rows, {table.metric} measured; {file}. Again, for a space: {again}"
        sections.append((f"Table: {table.runtime}", [Block("data", caption, label=f"lut-{table.runtime}")]))
        kinds = " ".join(sorted(set(rows.column("op").to_pylist())))
        made.find(f"{device.name}: {table.runtime}", name, "lookup table", kinds)
    if studies:
        links = [(study.page, study.name, "") for study in studies]
        sections.append(("Studies that name it", [Block("links", rows=links)]))
    made.add(name, device.name, _words_of(device), sections, Interactive(tables=tables))


def _predictors(device: Device, place: Workspace) -> Iterator[tuple[tuple[str, ...], str]]:
    """What each card states, and the command that makes it again."""
    for path in place.each("predictors", device.name, pattern=f"*/{cards.CARD}"):
        try:
            card = cards.read(path)
        except HwbenchError as error:  # one bad card must not hide the others
            yield (path.parent.name, f"unreadable: {error}", MISSING, MISSING, MISSING, MISSING), ""
            continue
        numbers = [
            stated(part, key).replace("%", "").strip()
            for part, key in ((card.errors, "mean_abs_error"), (card.coverage, "covered"))
        ]
        shown = registry.shown("aggregator", registry.current("aggregator", card.method))
        spaces, fitted = ", ".join(card.spaces) or MISSING, str(card.fitted_at or MISSING)[:10]
        yield (path.parent.name, shown, spaces, fitted, *numbers), card.rebuild


def runtimes(made: Site, studies: Sequence[Study]) -> None:
    """Every stored comparison of runtimes."""
    sections: list[Section] = []
    for study in studies:
        for path in sorted(study.folder.rglob("compare.json")):
            if (told := _told(stored.comparison, path, study, sections)) is None:
                continue
            sections.append((f"{told['device']} ({study.name})", _compared(told, len(sections))))
            made.find(f"Runtimes on {told['device']}", "runtimes.html", "comparison", " ".join(told["runtimes"]))
    empty: list[Section] = [
        ("Nothing yet", [Block("text", f"No comparison is stored; one is made by: {command('lut compare', device='local')}")])
    ]
    made.add("runtimes.html", "Runtimes", "Which runtime is fastest where, kernel by kernel", sections or empty)


def _told(read: Callable[[Path], T | None], path: Path, study: Study, sections: list[Section]) -> T | None:
    """What a study stored; where it cannot be read, the page says why and shows the others, and whoever builds it is told."""
    try:
        return read(path)
    except HwbenchError as error:
        said = f"{path.relative_to(study.folder)} of {study.name} is not shown: {error}"
        sections.append((f"{path.name} ({study.name})", [Block("text", said)]))
        note(said)
        return None


def _compared(told: Mapping[str, Any], number: int) -> list[Block]:
    base, names = told["base"], list(told["runtimes"])
    again = command("lut compare", device=told["device"], runtime=names)
    groups: dict[str, dict[str, list[float]]] = {}
    for row in told["rows"]:
        mine = groups.setdefault(row["kind"], {name: [] for name in names})
        for name in names:
            if row["latency_min_ms"][name] and row["latency_min_ms"][base]:
                mine[name].append(row["latency_min_ms"][name] / row["latency_min_ms"][base])
    kinds = [
        (kind["kind"], str(kind["rows"]), *(_multiple(kind["multiple"][name]) for name in names),
         *(f"{kind['leads_clearly'][name]} of {kind['leads'][name]}" for name in names))
        for kind in told["kinds"]
    ]  # fmt: skip
    head = ("kind of op", "rows", *(f"{name}, multiple" for name in names), *(f"{name}, leads beyond noise" for name in names))
    caption = (
        f"Geometric means of multiples of {base} (above 1: slower), and rows led beyond noise of rows led. {told['setting']}."
    )
    rows = [
        (row["key"], row["leader"] or MISSING, LEADS.get(row["how"], row["how"] or MISSING),
         *(_with_spread(row["latency_min_ms"][name], row["min_spread"][name]) for name in names))
        for row in told["rows"]
    ]  # fmt: skip
    each = "Every row: min in ms, measured, ± spread. Beyond noise: faster than every other by more than both spreads."
    return [
        Block(
            "picture",
            f"Latencies as multiples of {base}: a dot per row, a bar at the geometric mean.",
            panels=[Panel(f"runtimes-{number}", charts.multiples(groups, base))],
        ),
        Block("table", caption, head, kinds, commands=[again] * len(kinds)),
        Block(
            "table",
            each,
            ("op", "fastest", "beyond noise", *(f"{name} [ms], measured" for name in names)),
            rows,
            3,
            commands=[again] * len(rows),
        ),
    ]


def _multiple(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2f}"


def _with_spread(value: float | None, spread: float | None) -> str:
    if value is None:
        return MISSING
    return f"{ms(value)} ± {MISSING if spread is None else ms(value * spread, like=value)}"


def strategies(made: Site, studies: Sequence[Study]) -> None:
    """Strategies of every stored validation, beside the default one."""
    sections: list[Section] = []
    for study in studies:
        for path in sorted(study.folder.rglob("summary.json")):
            if (told := _told(stored.validation, path, study, sections)) is not None:
                for setting in dict.fromkeys(s for mine in told["strategies"].values() for s in mine):
                    sections.append(
                        (f"{told['table']}, {setting} ({study.name}/{path.parent.name})", _board(told, setting, len(sections)))
                    )
                for name in told["strategies"]:
                    made.find(name, "strategies.html", "strategy", f"{told['table']} {' '.join(told['devices'])}")
    empty: list[Section] = [("Nothing yet", [Block("text", "No validation is stored.")])]
    made.add("strategies.html", "Strategies", "How near searches come to the best answer, where it is known", sections or empty)


def _board(told: Mapping[str, Any], setting: str, number: int) -> list[Block]:
    marks, mine = told["marks"], {name: each[setting] for name, each in told["strategies"].items() if setting in each}
    ours = next((name for name in ("gp-ehvi", "gp_ehvi", "default") if name in mine), next(iter(mine)))

    def last(name: str, at: int) -> tuple[float, float | None, float | None] | None:
        volume = mine[name]["hypervolume"]
        if at >= len(volume["value"]) or volume["value"][at] is None:
            return None
        return volume["value"][at], volume["low"][at], volume["high"][at]

    def against(name: str, at: int) -> str:
        a, b = last(name, at), last(ours, at)
        return MISSING if name == ours or a is None or b is None else _against(a, b, "+.2f", 100)

    order = sorted(
        mine, key=lambda name: -max((found[0] for i in range(len(marks)) if (found := last(name, i)) is not None), default=0.0)
    )
    shown = [i for i, mark in enumerate(marks) if any(last(name, i) is not None for name in mine)]
    middle = shown[len(shown) // 2]
    rows = [
        (
            registry.shown("strategy", name), *(_interval(last(name, i)) for i in shown), against(name, middle),
            f"{mine[name]['evaluations_to_goal']['reached']} of {mine[name]['evaluations_to_goal']['runs']}",
            f"{mine[name]['own_ms_per_evaluation']:.2f}",
        )
        for name in order
    ]  # fmt: skip
    head = ("strategy", *(f"hypervolume at {marks[i]} [%]" for i in shown),
            f"against {ours} at {marks[middle]} [points], beyond noise",
            f"runs to {told['goal']:.0%}", "own ms per evaluation")  # fmt: skip
    caption = (
        f"Median share of the exact hypervolume with its 95 % interval over {told['seeds']} seeds, on {len(told['devices'])} "
        "devices; beyond noise: the intervals do not touch."
    )
    points = [
        {"name": registry.shown("strategy", name), "x": marks[i], **_missing(*found)}
        for name in order
        for i in shown
        if (found := last(name, i)) is not None
    ]
    spec = charts.curves(
        "Missing hypervolume",
        ("evaluations", "missing hypervolume [%]"),
        points,
        [registry.shown("strategy", n) for n in order],
    )
    return [
        Block(
            "picture",
            "What is missing of the exact hypervolume after so many evaluations; lower is better.",
            panels=[Panel(f"strategies-{number}", spec)],
        ),
        Block("table", caption, head, rows, commands=[told["command"]] * len(rows)),
    ]


def _missing(value: float, low: float | None, high: float | None) -> dict[str, float]:
    """What lacks of all, in percent, with the ends of its interval."""
    shares = {"value": value, "low": value if high is None else high, "high": value if low is None else low}
    return {name: max(LEAST_MISSING, 100 * (1 - share)) for name, share in shares.items()}


def _interval(found: tuple[float, float | None, float | None] | None) -> str:
    if found is None:
        return MISSING
    value, low, high = found
    return percent(value) if low is None or high is None else f"{percent(value)} [{percent(low)}, {percent(high)}]"


def proxies(made: Site, studies: Sequence[Study]) -> None:
    """Training-free scores against accuracies that are known, table by table."""
    sections: list[Section] = []
    for study in studies:
        for path in sorted(study.folder.rglob("stages/agreement.json")):
            found = _told(stored.agreements, path, study, sections)
            again = _told(stored.command_of, study.folder / "study.json", study, sections)
            if found is None or again is None:
                continue
            for table, mine in found.items():
                sections.append((f"{table}: {mine['networks']} networks ({study.name})", [_scores(mine, again)]))
                for name in mine["scores"]:
                    made.find(name, "proxies.html", "training-free score", table)
    empty: list[Section] = [("Nothing yet", [Block("text", "No study of training-free scores is stored.")])]
    made.add("proxies.html", "Proxies", "What training-free scores are worth beside counting parameters", sections or empty)


def _scores(told: Mapping[str, Any], again: str) -> Block:
    scores = told["scores"]
    base = scores.get("params", {}).get("tau")

    def against(name: str, tau: Sequence[float | None]) -> str:
        return MISSING if name == "params" or base is None else _against(tau, base, "+.3f")

    rows = [
        (
            name,
            str(each["scored"]),
            _tau(each["tau"]),
            _tau(each["within"]),
            _tau(each["given_params"]),
            against(name, each["tau"]),
        )
        for name, each in sorted(scores.items(), key=lambda item: -(item[1]["tau"][0] or -1.0))
    ]
    head = ("score", "networks", "tau", "tau within cells", "tau given parameters", "tau against params, beyond noise")
    judged = ", ".join(told["judged"])
    caption = f"Kendall's tau with accuracies, published; judged by {judged}. Beyond noise: the 95 % intervals do not touch."
    return Block("table", caption, head, rows, commands=[again] * len(rows))


def _against(mine: Sequence[float | None], base: Sequence[float | None], form: str, scale: float = 1) -> str:
    """The difference of two values, each with its interval, and whether it is more than noise: the intervals do not touch."""
    known = [each for each in (*mine, *base) if each is not None]
    if len(known) < 6:
        return MISSING
    value, low, high, other, other_low, other_high = known
    apart = low > other_high or high < other_low
    return f"{format(scale * (value - other), form)}, {'beyond' if apart else 'within'} noise"


def _tau(found: Sequence[float | None]) -> str:
    value, low, high = found
    if value is None:
        return MISSING
    return f"{value:.3f}" if low is None or high is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"
