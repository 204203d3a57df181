"""How long a run still takes, and how a row of numbers looks in one line.

Invariant: an estimate is made of durations seen in this process alone; what has not been seen yet is guessed from what is
most like it, and as long as nothing has been seen the answer is None, shown as "?". Edge case: a resumed run starts with
steps already done; they count for the bar and not for the mean.
"""

import time
from collections.abc import Callable, Mapping, Sequence

BARS = "▁▂▃▄▅▆▇█"
STEP = "step"


class Pace:
    """Durations by kind of work. `remaining` counts the stages that are still to come, by kind; steps are counted apart."""

    def __init__(self, steps: int, steps_done: int, remaining: Mapping[str, int], clock: Callable[[], float] = time.monotonic) -> None:
        self.steps, self.steps_done = steps, steps_done
        self._remaining = dict(remaining)
        self._seen: dict[str, list[float]] = {}
        self._clock, self._started = clock, clock()
        self._kind, self._since = "", clock()

    def expect(self, steps: int, steps_done: int, remaining: Mapping[str, int]) -> None:
        """What the run turned out to have before it."""
        self.steps, self.steps_done, self._remaining = steps, steps_done, dict(remaining)

    def begin(self, kind: str) -> None:
        """A stage of this kind begins and the one before it ends."""
        now = self._clock()
        if self._kind and self._kind != "train":  # training is measured by its steps
            self._seen.setdefault(self._kind, []).append(now - self._since)
        self._kind, self._since = kind, now
        if self._remaining.get(kind, 0) > 0:
            self._remaining[kind] -= 1

    def step_done(self, step: int) -> None:
        """Step number `step`, counted from 1 over the whole run, has ended."""
        now = self._clock()
        self._seen.setdefault(STEP, []).append(now - self._since)
        self._since, self.steps_done = now, step

    def elapsed(self) -> float:
        return self._clock() - self._started

    def left(self) -> float | None:
        """Seconds until the run is complete; None while no step has been timed."""
        if STEP not in self._seen:
            return None
        recent = self._seen[STEP][-10:]
        total = (self.steps - self.steps_done) * sum(recent) / len(recent)
        for kind, count in self._remaining.items():
            durations = self._seen.get(kind, [])
            total += count * sum(durations) / len(durations) if durations else 0.0
        return max(0.0, total - (self._clock() - self._since if self.steps_done < self.steps else 0.0))


def clock_text(seconds: float | None) -> str:
    """`1:05`, `2:00:00`, or `?` for None."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def sparkline(values: Sequence[float], width: int = 30) -> str:
    """The last `width` values as bars, the lowest of them lowest; equal values stand in the middle."""
    shown = list(values)[-width:]
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    if high == low:
        return BARS[3] * len(shown)
    return "".join(BARS[round((v - low) / (high - low) * (len(BARS) - 1))] for v in shown)
