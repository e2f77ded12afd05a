"""pymoo and Optuna through our contract are what they are in their own loops: the same architectures in the same order."""

from __future__ import annotations

import numpy as np
import pytest

from hwbench.core import registry
from hwbench.core.genes import keys
from hwbench.optimize.problem import Problem

SIZES = (4, 3, 5, 4, 2, 4)
GENES = [(f"g{i}", size) for i, size in enumerate(SIZES)]
BOTH = {"accuracy": "max", "latency_ms": "min"}
PROBLEMS = {
    "plain": Problem(GENES, BOTH),
    "a limit": Problem(GENES, BOTH, {"latency_ms": 7.0}),
    "one objective": Problem(GENES, {"accuracy": "max"}, {"latency_ms": 8.0}),
}
SEED = 4
WORST = 1e9


def measure(genes: np.ndarray) -> dict[str, np.ndarray]:
    """Every seventh architecture or so is invalid."""
    gain, cost = np.random.default_rng(1).random((2, len(SIZES), max(SIZES)))
    place = np.arange(len(SIZES))
    accuracy = 10 * gain[place, genes].sum(axis=1) + np.sin(genes[:, 0] * genes[:, 2])
    accuracy[genes.sum(axis=1) % 7 == 3] = np.nan
    return {"accuracy": accuracy, "latency_ms": 3 * cost[place, genes].sum(axis=1)}


def scored(problem: Problem, genes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(losses, violation) as finite numbers."""
    values = problem.complete(genes, measure(genes))
    return np.minimum(problem.losses(values), WORST), np.minimum(problem.violation(values), WORST)


def asked(name: str, problem: Problem, n: int) -> list[bytes]:
    strategy = registry.make("strategy", name, problem=problem, rng=np.random.default_rng(SEED))
    found: list[bytes] = []
    while len(found) < n:
        genes = strategy.ask(10)
        strategy.tell(genes, measure(genes))
        found += keys(genes)
    return found[:n]


def their_seed() -> int:
    return int(np.random.default_rng(SEED).integers(1 << 31))


def by_pymoo(problem: Problem, population: int, generations: int) -> list[bytes]:
    """pymoo's `minimize`, as its page on discrete variables has it: what is evaluated for the first time."""
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.problem import Problem as Theirs
    from pymoo.operators.crossover.sbx import SBX
    from pymoo.operators.mutation.pm import PM
    from pymoo.operators.repair.rounding import RoundingRepair
    from pymoo.operators.sampling.rnd import IntegerRandomSampling
    from pymoo.optimize import minimize

    found: dict[bytes, None] = {}

    class Evaluated(Theirs):
        def __init__(self):
            most = np.array(SIZES) - 1
            super().__init__(len(SIZES), len(problem.objectives), n_ieq_constr=1, xl=0, xu=most, vtype=int)

        def _evaluate(self, x, out, *args, **kwargs):
            genes = x.astype(np.uint8)
            found.update(dict.fromkeys(keys(genes)))
            out["F"], violation = scored(problem, genes)
            out["G"] = violation[:, None]

    algorithm = NSGA2(
        pop_size=population,
        sampling=IntegerRandomSampling(),
        crossover=SBX(prob=1.0, eta=3.0, vtype=float, repair=RoundingRepair()),
        mutation=PM(prob=1.0, eta=3.0, vtype=float, repair=RoundingRepair()),
        eliminate_duplicates=True,
    )
    minimize(Evaluated(), algorithm, ("n_gen", generations), seed=their_seed(), verbose=False)
    return list(found)


def by_optuna(problem: Problem, sampler: str, trials: int) -> list[bytes]:
    """Optuna's `optimize` with one of its samplers as it comes: what is evaluated for the first time."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    made = {
        "nsga2": lambda seed: optuna.samplers.NSGAIISampler(seed=seed),
        "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
        "tpe-multivariate": lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True),
    }
    found: dict[bytes, None] = {}

    def objective(trial):
        genes = np.array([[trial.suggest_categorical(name, tuple(range(size))) for name, size in GENES]], np.uint8)
        found[keys(genes)[0]] = None
        losses, violation = scored(problem, genes)
        trial.set_constraint("limits", violation[0])
        return tuple(losses[0])

    study = optuna.create_study(directions=["minimize"] * len(problem.objectives), sampler=made[sampler](their_seed()))
    study.optimize(objective, n_trials=trials)
    return list(found)


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("population", [20, 50])
def test_pymoo_goes_the_way_it_goes_alone(kind, population):
    pytest.importorskip("pymoo", reason="needs pymoo: pip install 'hwbench-nas[peers]'")
    alone = by_pymoo(PROBLEMS[kind], population, 300 // population)
    assert len(alone) > 150
    assert asked(f"pymoo-nsga2:population={population}", PROBLEMS[kind], len(alone)) == alone


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize(("sampler", "trials"), [("nsga2", 160), ("tpe", 40), ("tpe-multivariate", 60)])
def test_optuna_goes_the_way_it_goes_alone(kind, sampler, trials):
    pytest.importorskip("optuna", reason="needs optuna: pip install 'hwbench-nas[peers]'")
    alone = by_optuna(PROBLEMS[kind], sampler, trials)
    assert len(alone) > trials // 2
    assert asked(f"optuna-{sampler}", PROBLEMS[kind], len(alone)) == alone
