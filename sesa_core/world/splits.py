"""Countries into train, dev and test; every entity follows its country.

A chain of a dev or test question must stay inside its split, link partners included, so an assignment that keeps more
partners together gives more questions. We draw many assignments from one stream and keep the best: deterministic.
"""

from collections.abc import Mapping

import numpy as np

from sesa_core.world.schema import SPLIT_SHARES


def assign_splits(
    partners: Mapping[str, tuple[str, ...]], owned: Mapping[str, int], rng: np.random.Generator, tries: int = 3000
) -> dict[str, str]:
    """Country -> split. `partners[c]` are the countries that c's links lead to, `owned[c]` counts c's entities.

    Maximises the smaller of (links inside test, twice the links inside dev), so that neither is starved, among the
    assignments that leave training its share of the entities.
    """
    names = sorted(partners)
    place = {name: i for i, name in enumerate(names)}
    pairs = np.array([(place[c], place[p]) for c in names for p in partners[c]])
    n_dev, n_test = (round(SPLIT_SHARES[s] * len(names)) for s in ("dev", "test"))
    mass = np.array([owned.get(n, 0) for n in names])
    most = {1: 1.3 * SPLIT_SHARES["dev"] * mass.sum(), 2: 1.2 * SPLIT_SHARES["test"] * mass.sum()}
    best, best_score = None, -1
    for _ in range(tries):
        order = rng.permutation(len(names))
        split = np.zeros(len(names), dtype=np.int8)  # 0 train, 1 dev, 2 test
        split[order[:n_dev]], split[order[n_dev : n_dev + n_test]] = 1, 2
        ends = split[pairs]
        inside = [int(((ends[:, 0] == s) & (ends[:, 1] == s)).sum()) for s in (1, 2)]
        fair = all(mass[split == s].sum() <= most[s] for s in (1, 2))
        score = min(2 * inside[0], inside[1]) if fair else -1
        if score > best_score:
            best, best_score = split, score
    labels = ("train", "dev", "test")
    return {name: labels[best[place[name]]] for name in names}
