"""How long a run still takes, and how a row of numbers looks in one line.

Invariant: what was seen in this process replaces what was guessed. `guesses` give seconds by kind of work on a small laptop;
as soon as anything was timed, the guesses for everything else are stretched by how far off they were. A stage that takes
longer than expected is never shown as about to end: what is left of it stays a tenth of what it took so far. Edge case:
without guesses nothing is known before the first step was timed: the answer is None, shown as "?". A resumed run starts with
steps already done; they count for the bar and not for the mean.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

BARS = "▁▂▃▄▅▆▇█"
STEP, TRAIN = "step", "train"
RECENT = 10  # steps that the mean is taken over: they get faster and slower as a policy learns
OVERDUE = 0.1  # of the time it took so far: what is left of a stage that should have ended


@dataclass(frozen=True)
class Work:
    """What a run has before it: steps, and stages by kind; `guesses` are seconds for one of a kind."""

    steps: int
    steps_done: int
    stages: Mapping[str, int] = field(default_factory=dict)
    guesses: Mapping[str, float] = field(default_factory=dict)


class Pace:
    """Durations by kind of work. Stages are counted down as they begin; the steps of training are counted apart."""

    def __init__(self, work: Work, clock: Callable[[], float] = time.monotonic) -> None:
        self._seen: dict[str, list[float]] = {}
        self._clock, self._started = clock, clock()
        self._kind, self._since = "", clock()
        self.expect(work)

    def expect(self, work: Work) -> None:
        """What the run turned out to have before it, beside the stage that has begun."""
        self.steps, self.steps_done = work.steps, work.steps_done
        self._remaining, self._guesses = dict(work.stages), dict(work.guesses)

    def begin(self, kind: str) -> None:
        """A stage of this kind begins and the one before it ends."""
        now = self._clock()
        if self._kind and self._kind != TRAIN:  # training is measured by its steps
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

    @property
    def guessed(self) -> bool:
        """Whether the time left rests on guesses alone for the steps."""
        return STEP not in self._seen

    def left(self) -> float | None:
        """Seconds until the run is complete; None while it has steps before it and nothing is known of them."""
        each, steps = self._expected(STEP), self.steps - self.steps_done
        if each is None and steps > 0:
            return None
        each = each or 0.0
        total = max(0, steps - 1) * each if self._kind == TRAIN else steps * each
        total += sum(count * (self._expected(kind) or 0.0) for kind, count in self._remaining.items())
        return total + self._left_of_current()

    def _left_of_current(self) -> float:
        """Of the stage in progress, or of the step in progress while training."""
        training = self._kind == TRAIN
        if not self._kind or (training and self.steps_done >= self.steps):
            return 0.0
        used = self._clock() - self._since
        expected = self._expected(STEP if training else self._kind) or 0.0
        return max(expected - used, OVERDUE * used)

    def _expected(self, kind: str) -> float | None:
        """Seconds for one of a kind: the mean of those seen, else the guess, stretched."""
        if kind in self._seen:
            return fmean(self._seen[kind][-RECENT:])
        return self._guesses[kind] * self._stretch() if kind in self._guesses else None

    def _stretch(self) -> float:
        """How far off the guesses were: seconds seen over seconds guessed for the same work."""
        known = [kind for kind in self._seen if self._guesses.get(kind)]
        guessed = sum(self._guesses[kind] * len(self._seen[kind]) for kind in known)
        return sum(sum(self._seen[kind]) for kind in known) / guessed if guessed else 1.0


def left_text(pace: Pace) -> str:
    """`1:05`, `~1:05` where it rests on guesses, `?` where nothing is known."""
    seconds = pace.left()
    return f"{'~' if pace.guessed and seconds is not None else ''}{clock_text(seconds)}"


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
