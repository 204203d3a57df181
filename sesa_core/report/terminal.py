"""What a person sees while a run is going: where it is, what it earns, how long it still takes.

Owns the terminal while a run lasts: `captured_output` sends everything that libraries print, from C too, to the run's log,
and keeps the real standard output for us. Invariant: file descriptors 1 and 2 are what they were when the block is left,
by whatever way. Edge case: standard output that is no terminal gets one plain line per step and no control codes.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, Protocol, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sesa_core.report.pace import Pace, Work, clock_text, left_text, sparkline

HEADLINES = {  # metric of a step -> how it is called on the screen
    "solver/reward": "solver reward",
    "proposer/reward": "proposer reward",
    "proposer/valid_rate": "valid questions",
    "solver/frontier_share": "frontier questions",
}


class StepProgress(Protocol):
    """What a training callback reports. `step` counts from 1 over the whole run, `metrics` is empty until the step ends."""

    segment: int
    segments: int
    step: int
    steps: int
    phase: str
    metrics: Mapping[str, float]
    alarms: tuple[str, ...]


def where_text(segment: int, segments: int, step: int, steps: int) -> str:
    """How every line about a run begins."""
    return f"segment {segment} of {segments} · step {step} of {steps}"


class Display(Protocol):
    """Where a run tells how it goes."""

    def expect(self, work: Work) -> None:
        """What the run turned out to have before it."""
        ...

    def stage(self, kind: str, text: str) -> None:
        """A new stage began; `kind` (evaluate, train, boundary, ...) groups stages that last about as long."""
        ...

    def phase(self, text: str) -> None:
        """How far the stage has come; the next phase replaces it."""
        ...

    def progress(self, progress: StepProgress) -> None: ...

    def note(self, text: str) -> None:
        """A line that stays."""
        ...


@contextlib.contextmanager
def captured_output(log_file: Path, onto: Literal["stdout", "stderr"] = "stdout") -> Iterator[TextIO]:
    """Send file descriptors 1 and 2 to `log_file` (appending); yield a stream on the real standard output, or standard error."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept_out, kept_err = os.dup(1), os.dup(2)
    screen = os.fdopen(os.dup(kept_out if onto == "stdout" else kept_err), "w", encoding="utf-8", errors="replace")
    try:
        with log_file.open("ab", buffering=0) as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        yield screen
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(kept_out, 1)
        os.dup2(kept_err, 2)
        os.close(kept_out)
        os.close(kept_err)
        with contextlib.suppress(BrokenPipeError):
            screen.close()


class PlainDisplay:
    """One line per step and stage, for logs and pipes."""

    def __init__(self, write: Callable[[str], None], pace: Pace) -> None:
        self._write, self._pace = write, pace

    def expect(self, work: Work) -> None:
        self._pace.expect(work)

    def stage(self, kind: str, text: str) -> None:
        self._pace.begin(kind)
        self._write(f"{text}, left {left_text(self._pace)}")

    def phase(self, text: str) -> None:
        """Nothing: a line for each would drown the others."""

    def progress(self, progress: StepProgress) -> None:
        if not progress.metrics:
            return
        self._pace.step_done(progress.step)
        shown = [f"{HEADLINES[k]} {progress.metrics[k]:.2f}" for k in HEADLINES if k in progress.metrics]
        where = f"segment {progress.segment}/{progress.segments} step {progress.step}/{progress.steps}"
        self._write(", ".join([where, *shown, f"left {left_text(self._pace)}"]))
        for alarm in progress.alarms:
            self._write(alarm)

    def note(self, text: str) -> None:
        self._write(text)


class LiveDisplay:
    """Three lines that are drawn again four times a second: where, how far, how well."""

    def __init__(self, title: str, console: Console, pace: Pace) -> None:
        self._title, self._console, self._pace = title, console, pace
        self._where, self._phase = "starting", ""
        self._history: dict[str, list[float]] = {key: [] for key in HEADLINES}
        self._live = Live(
            console=console, get_renderable=self._render, refresh_per_second=4, transient=True, redirect_stdout=False, redirect_stderr=False
        )

    def __enter__(self) -> "LiveDisplay":
        self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._live.stop()

    def expect(self, work: Work) -> None:
        self._pace.expect(work)

    def stage(self, kind: str, text: str) -> None:
        self._pace.begin(kind)
        self._where, self._phase = text, ""

    def phase(self, text: str) -> None:
        self._phase = f" · {text}"

    def progress(self, progress: StepProgress) -> None:
        self._where = where_text(progress.segment, progress.segments, progress.step, progress.steps)
        self.phase(progress.phase)
        if progress.metrics:
            self._pace.step_done(progress.step)
            for key in HEADLINES:
                self._history[key] += [progress.metrics[key]] if key in progress.metrics else []
        for alarm in progress.alarms:
            self.note(alarm)

    def note(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False)

    def _render(self) -> Group:
        pace = self._pace
        bar = Table.grid(padding=(0, 1))
        times = f"{clock_text(pace.elapsed())} gone · {left_text(pace)} left"
        bar.add_row(ProgressBar(total=pace.steps, completed=pace.steps_done, width=32), f"{pace.steps_done}/{pace.steps}", times)
        rewards = Table.grid(padding=(0, 1))
        for key, values in self._history.items():
            if values:
                rewards.add_row(f"  {HEADLINES[key]}", f"{values[-1]:.2f}", Text(sparkline(values), style="cyan"))
        return Group(Text.assemble((self._title, "bold"), " · ", self._where, self._phase), bar, rewards)


@contextlib.contextmanager
def open_display(title: str, screen: TextIO, pace: Pace) -> Iterator[Display]:
    """The display that suits `screen`: live on a terminal, plain lines elsewhere."""
    if screen.isatty():
        with LiveDisplay(title, Console(file=screen), pace) as display:
            yield display
        return

    def write(text: str) -> None:
        screen.write(f"{time.strftime('%H:%M:%S')} {title}: {text}\n")
        screen.flush()

    yield PlainDisplay(write, pace)
