"""The report of studies.table_claims: every claim with its rule, what was seen, and the verdict of the rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hwbench.core import markdown

Stage = Mapping[str, Any]


def verdict(stated: Mapping[str, Any]) -> str:
    """Of a difference that the claim says is above 0."""
    return "holds" if stated["low"] > 0 else "fails" if stated["high"] < 0 else "open"


def shown(stated: Mapping[str, Any], digits: int = 2, times: float = 1.0) -> str:
    """A difference with its interval."""
    value, low, high = (f"{times * stated[key]:.{digits}f}" for key in ("value", "low", "high"))
    return f"{value} [{low}, {high}]"


def report(results: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """One section per claim, of the stages that were run."""
    parts = []
    for kind, section in SECTIONS.items():
        mine = {name.partition(" ")[2]: found for name, found in results.items() if name.partition(" ")[0] == kind}
        if mine:
            parts += section(mine)
    return markdown.document(*parts)


def best_of_n(stages: Mapping[str, Stage]) -> list[str]:
    parts = [
        markdown.heading("Claim 19: more samples help, and DSS++ converges sooner than DSS", 2),
        "Mean true accuracy of the network with the best score of n, drawn without repetition; `all`: of the whole table. "
        "Rules: `more help`, the gain from one network to half of the table, is above 0; `gains shrink`, the gain up to the "
        "middle of the logarithmic scale less the gain after it, is above 0; `sooner`, the mean distance of the curve of DSS "
        "to its own end less that of DSS++, is above 0. `the best` is what a perfect score would have chosen.",
    ]
    for table, found in stages.items():
        head = ["score", *(f"n {n}" for n in found["counts"]), f"all {found['networks']}", "more help", "gains shrink"]
        rows = [
            [name, *(f"{each:.2f}" for each in told["curve"]), f"{told['final']:.2f}",
             *(f"{shown(told[key])} {verdict(told[key])}" for key in ("help", "shrink"))]
            for name, told in found["scores"].items()
        ]  # fmt: skip
        rows.append(["the best", *(f"{each:.2f}" for each in found["best"]), "", "", ""])
        parts += [f"{table}: {found['networks']} networks, mean {found['mean']:.2f}, {found['repeats']} repeats."]
        parts += [markdown.table(head, rows)]
        if "sooner" in found["scores"].get("dss-plus-plus", {}):
            sooner = found["scores"]["dss-plus-plus"]["sooner"]
            parts += [f"DSS++ sooner than DSS: {shown(sooner)}: {verdict(sooner)}."]
    return parts


def linas(stages: Mapping[str, Stage]) -> list[str]:
    head = ["table, cost", "strategy", "median evaluations", "own ms", "fewer than random", "fewer than nsga2"]
    rows = []
    for place, found in stages.items():
        for name, median in found["median"].items():
            fewer = [found["fewer"].get(f"{name} than {other}") for other in ("random", "nsga2")]
            told = ["-" if each is None else f"{shown(each, 1)} {verdict(each)}" for each in fewer]
            rows.append([place, name, f"{median:g}", f"{found['own_ms_per_evaluation'][name]:.2f}", *told])
    first = next(iter(stages.values()))
    return [
        markdown.heading("Claim 23: LINAS needs fewer evaluations", 2),
        f"Evaluations until 95 % of the exact hypervolume of accuracy and cost, both paid for; {first['seeds']} seeds, at "
        f"most {first['evaluations']} evaluations (a search that does not get there counts one more). Rule: those of the other "
        "strategy less those of LINAS are above 0. Own ms: processor time of the strategy per evaluation, with its predictors.",
        markdown.table(head, rows, 2),
    ]


def zero_reward(stages: Mapping[str, Stage]) -> list[str]:
    head = ["device", "budget at %", "controller", "reward", "trained", "lacks", "zero saves, %", "zero ends better by"]
    rows = []
    for device, found in stages.items():
        for told in found["cells"].values():
            against = ["", ""]
            if told["reward"] != "zeroed":
                against = [shown(told["saved"], 0, 100), f"{shown(told['zeroed_better'])} {_harm(told['zeroed_better'])}"]
            asked = [device, told["percentile"], told["controller"], told["reward"]]
            rows.append([*asked, f"{told['trained']:.0f}", f"{told['lacks']:.2f}", *against])
    first = next(iter(stages.values()))
    return [
        markdown.heading("Claim 24: a zero reward beyond the budget saves trainings", 2),
        f"NAS-Bench-201, {first['sampled']} networks drawn by a controller, {first['seeds']} seeds. With a zero reward only "
        "what keeps the budget is trained; the other rewards need every accuracy. `lacks`: accuracy points of the best network "
        "found within the budget below the best there is. `saves`: the share of trainings left out against that reward. Rule: "
        "report the share and the final reward; `harm` where the interval of the final difference is below 0.",
        markdown.table(head, rows, 4),
    ]


def _harm(stated: Mapping[str, Any]) -> str:
    return {"holds": "better", "fails": "harm", "open": "equal or open"}[verdict(stated)]


def hurdles(stages: Mapping[str, Stage]) -> list[str]:
    parts = [
        markdown.heading("Claim 25: dynamic hurdles save compute", 2),
        "Best finally trained network after equally many epochs, dynamic hurdles less the same evolution that trains every "
        "network to the end; budgets in whole trainings. Rule: above 0. On NAS-Bench-201 the brief training is one of its own "
        "of 12 epochs (with its own learning rates), not the beginning of the long one; on NAS-Bench-NLP it is.",
    ]
    for table, found in stages.items():
        head = ["brief training", *(f"{budget} trainings" for budget in found["budgets"])]
        rows = [["plain tournament", *(f"{each:.3f}" for each in found["plain"])]]
        for share, told in found["better"].items():
            rows.append([f"{float(share):.0%} first", *(f"{shown(each, 3)} {verdict(each)}" for each in told)])
        best = f"the best of {found['networks']} has {found['best']:.3f}"
        parts += [f"{table}, {found['unit']}: {best}; {found['seeds']} seeds.", markdown.table(head, rows)]
        kept = found["early"][:: max(len(found["early"]) // 8, 1)]
        rows = [[f"{each['share']:.0%}", f"{each['tau']:.3f}", f"{each['top']:.3f}"] for each in kept]
        parts += [
            "Kendall's tau of the accuracy after a part of the training with the final one:",
            markdown.table(["share", "all networks", "the better tenth"], rows),
        ]
    return parts


def strategies(stages: Mapping[str, Stage]) -> list[str]:
    parts = [
        markdown.heading("Strategies on tables that hold a sample", 2),
        "`hwbench validate`, cost known; a pool: strategies choose among the known networks only. Median hypervolume, % of the "
        "exact one, and mean regret over budgets at the 10th and 50th percentile. A pool of a few hundred networks is soon "
        "exhausted: that a strategy is ahead of random search here says little about a space.",
    ]
    for table, found in stages.items():
        pool = ", ".join(f"{n} networks with {cost}" for cost, n in found["pool"].items())
        head = ["strategy", *(f"at {mark}" for mark in found["marks"]), *(f"regret at {mark}" for mark in found["marks"])]
        rows = []
        for name, ways in found["strategies"].items():
            told = ways["known"]
            volume = [_cell(value, 100) for value in told["hypervolume"]["value"]]
            rows.append([name, *volume, *(_cell(value) for value in told["regret"]["all"]["value"])])
        parts += [f"{table} ({pool}; regret in {found['accuracy_unit']}), {found['seeds']} seeds.", markdown.table(head, rows)]
    return parts


def _cell(value: float | None, times: float = 1.0) -> str:
    return "-" if value is None else f"{times * value:.2f}"


SECTIONS = {
    "best-of-n": best_of_n, "linas": linas, "zero-reward": zero_reward, "hurdles": hurdles, "strategies": strategies
}  # fmt: skip
"""First word of a stage -> its section."""
