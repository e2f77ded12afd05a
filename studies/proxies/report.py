"""The report: every score beside the baselines, the claims one by one, our own score on networks it was not chosen on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hwbench.core import markdown
from studies.harness import Results
from studies.proxies.agreement import COVERAGE, RESAMPLES
from studies.proxies.analysis import BASELINES, DSS, LOSS_BOUND, REPEATS

INTRODUCTION = (
    f"Kendall's tau-b of training-free scores with accuracies, mean over the columns that judge, with {COVERAGE} % bootstrap "
    f"intervals over networks ({RESAMPLES} samples, the same for all scores). Within: pairs of equal depth and width only. "
    "Given parameters: partial tau. A score without data takes all ones, one with data a batch of 16 of noise (mgm 100); "
    "weights N(0, 0.02), seed 0. Scores are computed for untrained networks of hwbench's spaces; accuracies are those of the "
    "tables."
)
SHOWN = 5
NOTHING: list[float | None] = [None, None, None]


def report(results: Results, options: Mapping[str, Any]) -> str:
    """What there is so far."""
    parts = [INTRODUCTION]
    for name, found in results.get("agreement", {}).items():
        parts += agreement(name, found)
    if "claims" in results:
        parts.append(markdown.heading("Claims", 2))
        for title, table in CLAIMS.items():
            parts += table(title, results["claims"])
    if "families" in results:
        parts += families(results["families"])
    if "choice" in results:
        parts += choice(results["choice"])
    if "second try" in results:
        parts += tried_again(results["second try"])
    if "verdict" in results:
        parts += ahead(results["verdict"])
    failed = {name: each["no score"] for name, each in results.items() if isinstance(each, dict) and each.get("no score")}
    if failed:
        told = (f"{name}: {n} networks, {why}" for name, reasons in failed.items() for why, n in reasons.items())
        parts += [markdown.heading("Networks without a score", 2), markdown.bullets(told)]
    return markdown.document(*parts)


def interval(values: Sequence[float | None]) -> str:
    """.524 [.41, .62], or a dash."""
    if values[0] is None or values[0] != values[0]:
        return "-"
    point, low, high = (number(each) for each in values)
    return f"{point} [{low}, {high}]"


def number(value: float | None) -> str:
    """Three digits without the leading zero."""
    return "-" if value is None or value != value else f"{value:.3f}".replace("0.", ".", 1)


def known(value: float | None) -> float:
    """To sort by; what is unknown comes last among the good and first among the bad."""
    return float("-inf") if value is None else value


def agreement(name: str, found: Mapping[str, Any]) -> list[str]:
    """One table, the best score first."""
    rows = sorted(found["scores"].items(), key=lambda item: -known(item[1]["tau"][0]))
    head = ["score", "networks", "tau", "within cells", "given parameters", "with parameters", "with FLOPs"]
    cells = [
        [
            f"**{score}**" if score in BASELINES else score,
            row["scored"],
            *(interval(row[key]) for key in ("tau", "within", "given_params")),
            *(number(row[key]) for key in ("with_params", "with_flops")),
        ]
        for score, row in rows
    ]
    columns = list(rows[0][1]["columns"])
    each = [[score, *(number(row["columns"][column]) for column in columns)] for score, row in rows]
    judged = ", ".join(found["judged"])
    return [
        markdown.heading(f"{name}: {found['networks']} networks, {found['cells']} cells", 2),
        f"Judged by {judged}. Baselines are bold.",
        markdown.table(head, cells),
        "Every column by itself:",
        markdown.table(["score", *columns], each),
    ]


def verdict(holds: bool) -> str:
    """In a word."""
    return "holds" if holds else "does not hold"


def _each(found: Mapping[str, Any], about: str) -> list[tuple[str, dict[str, Any]]]:
    return [(table, claims[about]) for table, claims in found.items() if about in claims]


def order(title: str, found: Mapping[str, Any]) -> list[str]:
    """Claim 11."""
    parts, told = [], []
    for table, each in _each(found, "order"):
        rows = [
            [name, *(interval(each["differences"][mine][name]) for mine in DSS)]
            for name in next(iter(each["differences"].values()))
        ]
        parts += [f"{table}: DSS and DSS++ minus each other score.", markdown.table(["score", *DSS], rows)]
        told += [
            f"{table}: {verdict(each['holds'])} against {len(each['others'])} scores.",
            f"signed order: {', '.join(each['signed'])}",
        ]
        told.append(f"order by |tau|: {', '.join(each['absolute'])}")
    return [markdown.heading(title, 3), *parts, markdown.bullets(told)] if parts else []


def ranks(title: str, found: Mapping[str, Any]) -> list[str]:
    """Claim 12."""
    rows = [
        [table, name, interval(values)] for table, each in _each(found, "ranks") for name, values in each["differences"].items()
    ]
    bins = sum(each["bins"] for _, each in _each(found, "ranks"))
    above = sum(each["bins_above"] for _, each in _each(found, "ranks"))
    decided = (
        f"{verdict(above >= 2)}: above 0 in {above} of {bins} bins" if bins else "not decided: no table with bins is here yet"
    )
    return [
        markdown.heading(title, 3),
        f"The rule asks for two bins of a table of 1,000 networks or more: {decided}.",
        markdown.table(["table", "networks", "DSS++ minus DSS"], rows, texts=2),
    ]


def apart(about: str, minus: str) -> Callable[[str, Mapping[str, Any]], list[str]]:
    """Claims 13 and 14: taus of parts and differences to the first of them."""

    def told(title: str, found: Mapping[str, Any]) -> list[str]:
        each = _each(found, about)
        rows = [
            [table, name, interval(tau), interval(claim["differences"].get(name, NOTHING))]
            for table, claim in each
            for name, tau in claim["taus"].items()
        ]
        words = "; ".join(f"{table}: {verdict(claim['holds'])}" for table, claim in each)
        return (
            [markdown.heading(title, 3), f"{words}.", markdown.table(["table", "part", "tau", minus], rows, texts=2)]
            if each
            else []
        )

    return told


def seeds(title: str, found: Mapping[str, Any]) -> list[str]:
    """Claim 16."""
    parts: list[str] = []
    for table, each in _each(found, "weight seeds"):
        rows = [
            [name, ", ".join(map(number, row["taus"])), number(row["deviation"]), number(row["tau_between_seeds"])]
            for name, row in each.items()
            if isinstance(row, dict)
        ]
        parts += [
            f"{table}: another data seed changes the terms by {each['data_seed_changes_by']:g} ({verdict(each['holds'])}, "
            "trivially: the input is constant). Other seeds of the weights:",
            markdown.table(["score", "tau by seed", "deviation", "tau between seeds"], rows, texts=2),
        ]
    return [markdown.heading(title, 3), *parts] if parts else []


def initialisations(title: str, found: Mapping[str, Any]) -> list[str]:
    """Claim 17."""
    parts: list[str] = []
    for table, each in _each(found, "initialisations"):
        ordered = sorted(each["rows"].items(), key=lambda item: -known(item[1]["tau"][0]))
        keys = ("tau", "normal_minus_it", "given_width", "dss")
        rows = [[name, *(interval(row[key]) for key in keys), number(row["with_width"])] for name, row in ordered]
        head = ["initialisation", "DSS++", "normal minus it", "given width", "DSS", "with width"]
        parts += [f"{table}: {verdict(each['holds'])}.", markdown.table(head, rows)]
    return [markdown.heading(title, 3), *parts] if parts else []


def inputs(title: str, found: Mapping[str, Any]) -> list[str]:
    """Claim 18, inputs."""
    parts: list[str] = []
    for table, each in _each(found, "inputs"):
        rows = [
            [
                name,
                len(taus),
                number(float(np.mean(taus))),
                number(min(taus)),
                number(max(taus)),
                _above(each["differences"].get(name)),
            ]
            for name, taus in each["taus"].items()
        ]
        head = ["input", "draws", "mean tau of DSS++", "least", "most", "draws that ones beat"]
        parts += [
            f"{table}: {verdict(each['holds'])} (interval above 0 in every draw); order {', '.join(each['order'])}.",
            markdown.table(head, rows),
        ]
    return [markdown.heading(title, 3), *parts] if parts else []


def _above(differences: Sequence[Sequence[float]] | None) -> str:
    return "-" if differences is None else f"{sum(each[1] > 0 for each in differences)}"


def losses(title: str, found: Mapping[str, Any]) -> list[str]:
    """Claim 18, losses."""
    parts: list[str] = []
    for table, each in _each(found, "losses"):
        rows = [[name, interval(tau), interval(each["differences"].get(name, NOTHING))] for name, tau in each["taus"].items()]
        parts += [
            f"{table}: {verdict(each['holds'])} (|difference| below {LOSS_BOUND}).",
            markdown.table(["loss", "tau of DSS++", "minus that of the sum"], rows),
        ]
    return [markdown.heading(title, 3), *parts] if parts else []


def best_of_n(title: str, found: Mapping[str, Any]) -> list[str]:
    """Claim 19."""
    parts = []
    for table, each in _each(found, "best of n"):
        rows = [[name, *(f"{value:.2f}" for value in curve)] for name, curve in each["curves"].items()]
        parts += [
            f"{table}: accuracy of the best of n by a score, in deviations above the mean (best network {each['best']:.2f}), "
            f"mean of {REPEATS} draws.",
            markdown.table(["score", *(f"n = {size}" for size in each["sizes"])], rows),
        ]
    return [markdown.heading(title, 3), *parts] if parts else []


def families(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Claim 21."""
    rows = [
        [name, f"{row['params']:.2f}", *(f"{row[key]:.3g}" for key in ("diversity", "saliency", "dss-plus-plus"))]
        for name, row in found.items()
    ]
    ordered = [row["dss-plus-plus"] for row in found.values()]
    rising = verdict(ordered == sorted(ordered) and len(set(ordered)) == len(ordered))
    return [
        markdown.heading("21: DSS++ orders the PiT family by size", 3),
        f"{rising.capitalize()}; parameters give the same order, so it separates nothing.",
        markdown.table(["network", "million parameters", "diversity", "saliency", "DSS++"], rows),
    ]


def choice(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Forms of our own score, the best first, down to the one that was taken and the plain number of parameters."""
    names = list(found[0]["taus"])
    rows = [
        [
            f"{each['width power']:.2f}", f"{each['weight power']:.2f}", f"{each['early']:.1f}", "yes" if each["taken"] else "",
            *(number(each["taus"][name]) for name in names), number(each["mean"]),
            *(number(each["within"][name]) for name in names),
        ]
        for at, each in enumerate(found)
        if at < SHOWN or each["taken"] or (each["width power"], each["weight power"], each["early"]) == (0.0, 1.0, 0.0)
    ]  # fmt: skip
    head = ["width^", "weights^", "early", "taken", *names, "mean", *(f"{name} within" for name in names)]
    return [
        markdown.heading("Our own score: chosen on the first halves", 2),
        f"{len(found)} forms; the best {SHOWN}, the one taken, and the sum of weights. Taus on the first halves only.",
        markdown.table(head, rows),
    ]


def tried_again(found: Mapping[str, Any]) -> list[str]:
    """What choosing among many more forms would be worth."""
    parts = [
        markdown.heading("Our own score: a second try on the first halves", 2),
        f"{found['forms']} forms: other powers, attention apart from MLPs, depth by itself, and the form taken together with "
        f"{', '.join(found['combined with'])}. Chosen on four fifths of the first halves, judged on the fifth left out: mean "
        "difference to the form that is taken. Nothing of the second halves, which were seen once, is looked at.",
    ]
    for rule, told in found["chosen by"].items():
        left, whole = told["left out"], told["on all"]
        rows = [[name, number(value)] for name, value in left.items()]
        least, most = (number(each) for each in told["repeats"])
        parts += [
            markdown.heading(f"Chosen by {rule}", 3),
            markdown.table(["on what was left out", "chosen minus taken"], rows),
            f"Over repeats {least} to {most}. Chosen most often: "
            f"{'; '.join(f'{form} ({n})' for form, n in told['picked'][:3])}. "
            f"On all of the first halves, where it was chosen, the best is: {whole['form']}; it is ahead by "
            f"{interval(whole['difference'])}.",
        ]
    return parts


def ahead(found: Mapping[str, Any]) -> list[str]:
    """Our own score on networks that did not choose it."""
    parts = [markdown.heading("Our own score: judged on the second halves", 2), *_ahead(found)]
    if found.get("unseen", {}).get("networks"):
        parts += [markdown.heading("Our own score: on tables that chose nothing", 2), *_ahead(found["unseen"])]
        parts += [markdown.heading("Our own score: on all networks that chose nothing", 2), *_differences(found["all"])]
    return parts


def _ahead(found: Mapping[str, Any]) -> list[str]:
    tables = list(found["tables"])
    scores = dict.fromkeys(name for table in tables for name in found["tables"][table])
    taus = [
        [
            score,
            *(
                interval(found["tables"][table].get(score, {}).get(key, NOTHING))
                for key in ("tau", "within")
                for table in tables
            ),
        ]
        for score in scores
    ]
    head = ["score", *tables, *(f"{table} within" for table in tables)]
    return [*_differences(found), "Taus on these networks:", markdown.table(head, taus)]


def _differences(found: Mapping[str, Any]) -> list[str]:
    """To every other score, mean over the tables that have it."""
    sizes = ", ".join(f"{n} networks of {name}" for name, n in found["networks"].items())
    ordered = sorted(found["ahead"].items(), key=lambda item: known(item[1]["difference"][0]))
    rows = [
        [name, len(each["tables"]), interval(each["difference"]), len(each["within tables"]), interval(each["within"])]
        for name, each in ordered
    ]
    behind = [name for name, each in ordered if not known(each["difference"][1]) > 0]
    words = f"not ahead of {', '.join(behind)}" if behind else f"ahead of all {len(ordered)}"
    if partly := [name for name, each in ordered if len(each["tables"]) < len(found["tables"])]:
        words += f" (not scored on every table: {', '.join(partly)})"
    return [
        f"{sizes}. `hwbench` is {words}, by mean difference over tables (interval above 0).",
        markdown.table(["score", "tables", "hwbench minus it", "tables with cells", "the same within cells"], rows),
    ]


CLAIMS: dict[str, Callable[[str, Mapping[str, Any]], list[str]]] = {
    "11: DSS and DSS++ above every other score": order,
    "12: DSS++ above DSS": ranks,
    "13: the product of nuclear norms above either factor": apart("factors", "product minus it"),
    "14: saliency belongs on the MLP": apart("places", "MLP minus it"),
    "16: the seed does not matter": seeds,
    "17: a normal distribution is the best initialisation": initialisations,
    "18: all ones are the best input": inputs,
    "18: the loss matters little": losses,
    "19: more samples help, and DSS++ converges sooner": best_of_n,
}
