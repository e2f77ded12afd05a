"""Our own training-free score (`--proxy hwbench`): chosen on one half of each table, judged once on the other.

Fixed before any accuracy of the second halves was looked at:

    halves      Networks in the order of the SHA-256 of seed, table and genes; the first half of them chooses.
    what counts Mean tau with the columns that judge, on all pairs of a half.
    judged      Mean over the tables of the difference to each baseline and each proxy, on the second halves: stratified
                bootstrap (every table is drawn on its own, all scores on the same samples), 95 % interval. The score is ahead
                where the interval to every other score is above 0. Single tables, and taus within cells of equal depth and
                width, are reported, not judged.
"""

from __future__ import annotations

import hashlib

import numpy as np

from studies.proxies.tables import Known

SEED = 20261118


def halves(known: Known) -> tuple[np.ndarray, np.ndarray]:
    """(indices that choose, indices that judge)."""
    names = [column.tobytes().hex() for column in np.ascontiguousarray(known.population.T)]
    order = np.argsort([hashlib.sha256(f"{SEED} {known.name} {name}".encode()).hexdigest() for name in names])
    middle = (len(order) + 1) // 2
    return np.sort(order[:middle]), np.sort(order[middle:])
