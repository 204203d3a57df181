"""Two ways of doing one thing, timed in turn in one run: only their ratio travels from machine to machine."""

import time
from collections.abc import Callable
from statistics import median

ROUNDS = 3


def seconds(do: Callable[[], object]) -> float:
    started = time.perf_counter()
    do()
    return time.perf_counter() - started


def compare(benchmark, ours: Callable[[], object], theirs: Callable[[], object], at_least: float | None = None) -> None:
    """Time `ours` with the benchmark fixture and `theirs` beside it; the ratio of the medians is kept with the result.

    With `at_least` it fails if ours is not so many times as fast.
    """
    other = median(seconds(theirs) for _ in range(ROUNDS))
    benchmark.pedantic(ours, rounds=ROUNDS, warmup_rounds=1)
    own = benchmark.stats.stats.median
    benchmark.extra_info |= {"theirs_s": round(other, 4), "ratio": round(other / own, 2)}
    print(f"\nours {own:.3f} s, the original's way {other:.3f} s: {other / own:.1f} times as fast")
    assert at_least is None or other / own >= at_least
