"""An ablation: every arm with every seed, each cell one `sesa run` in a process of its own.

Owns the folder of an experiment: the cells' runs, what each printed (`<cell>.screen.txt`), and why one failed (`<cell>.failed.txt`).
The truth about a cell is its run's folder, so whoever asks again reads what is done, resumes what was broken off and tries again
what failed. Invariants: cells with other settings than those asked for are refused before anything starts; a cell that fails stops
no other. Edge case: a cell that another process drives (its ablation was killed) is waited for, not started twice.
"""

import json
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from flows.commands.options import STOPPED
from flows.worlds import pinned
from sesa_core.config.load import PLACES, config_hash, from_the_root, load_config, without_replaced_kinds
from sesa_core.config.models import RunConfig
from sesa_core.errors import ConfigError
from sesa_core.evaluation.ablation.arms import OWNED, Arm, matched, require_same_measure
from sesa_core.evaluation.ablation.cells import Cell, CellResult, read_result
from sesa_core.evaluation.ablation.document import Experiment
from sesa_core.training.run_folder import RunFolder, is_live

LOOK_S = 0.5


@dataclass(frozen=True)
class Settings:
    """What the cells of an experiment have in common, as a person gave it."""

    preset: str | None
    file: Path | None
    overrides: tuple[str, ...]
    segments: int | None

    def __post_init__(self) -> None:
        for override in self.overrides:
            key = override.partition("=")[0].strip()
            if key in OWNED:
                raise ConfigError("--set", override, f"give it with {OWNED[key]}")

    def of(self, arm: Arm, seed: int) -> list[str]:
        """`key=value` of one cell, in the order in which they are laid over the preset and the file. An arm that takes another kind
        of settings leaves behind what only the experiment's kind knows."""
        size = [f"selfplay.segments={self.segments}"] if self.segments is not None else []
        return [*without_replaced_kinds(self.overrides, arm.changes), *size, *arm.changes, f"seed={seed}"]

    def config(self, arm: Arm, seed: int) -> RunConfig:
        return load_config(self.preset, self.file, self.of(arm, seed))

    def options(self) -> list[str]:
        """As `sesa run` and `sesa ablate` take them, without `overrides`."""
        chosen = {"--preset": self.preset, "--config": self.file}
        return [part for option, value in chosen.items() if value is not None for part in (option, str(value))]


@dataclass(frozen=True)
class CellRun:
    """One cell on disk."""

    arm: Arm
    seed: int
    settings: Settings
    runs_dir: Path

    @cached_property
    def folder(self) -> RunFolder:
        return RunFolder(self.runs_dir / f"{self.arm.name.replace('_', '-')}-seed-{self.seed}")

    @property
    def screen_file(self) -> Path:
        return self.runs_dir / f"{self.folder.name}.screen.txt"

    @property
    def failed_file(self) -> Path:
        return self.runs_dir / f"{self.folder.name}.failed.txt"

    @cached_property
    def config(self) -> RunConfig:
        return self.settings.config(self.arm, self.seed)

    def command(self) -> list[str]:
        """A new run, or what is left of one that was broken off."""
        place = ["--name", self.folder.name, "--runs-dir", str(self.runs_dir)]
        sesa_run = [sys.executable, "-m", "flows.cli", "run", *place]
        if self.folder.config_file.exists():
            return [*sesa_run, "--resume"]
        changes = [part for setting in self.settings.of(self.arm, self.seed) for part in ("--set", setting)]
        return [*sesa_run, *self.settings.options(), *changes]

    def result(self) -> CellResult:
        rows = [json.loads(line) for line in self.folder.metrics_file.read_text().splitlines()]
        return read_result(self.folder.report(), rows, self.config.selfplay.solver_group)


@dataclass(frozen=True)
class Status:
    """How a cell stands. `step` of `steps` is the last one that was played; `done` carries the accuracy that a table shows."""

    kind: str  # waiting, running, broken off, failed, done
    step: int = 0
    steps: int = 0
    reason: str = ""
    accuracy: float | None = None

    def __str__(self) -> str:
        if self.kind == "done":
            return f"done {100 * (self.accuracy or 0.0):.1f} %"
        if self.kind == "failed":
            return f"failed: {self.reason}"
        if self.kind == "waiting":
            return self.kind
        where = f"step {self.step}/{self.steps}" if self.step else "before the first step"
        return f"{self.kind}, {where}" if self.step < self.steps else f"{self.kind}, evaluating"


def stand(cell: CellRun, running: bool = False) -> Status:
    """`running`: this process drives the cell, so its lock need not be tried."""
    folder, plan = cell.folder, cell.config.selfplay
    if folder.complete:
        arms = _last(folder.report()["evaluations"])["arms"]
        return Status("done", accuracy=arms.get("on", next(iter(arms.values())))["greedy"])
    where = {"step": _last_step(folder), "steps": plan.segments * plan.steps_per_segment}
    if running or (folder.config_file.exists() and is_live(folder)):
        return Status("running", **where)
    if cell.failed_file.exists():
        return Status("failed", reason=cell.failed_file.read_text().strip(), **where)
    return Status("broken off" if folder.config_file.exists() else "waiting", **where)


def _last(evaluations: dict) -> dict:
    return evaluations[max(evaluations, key=int)]


def _last_step(folder: RunFolder) -> int:
    if not folder.metrics_file.exists():
        return 0
    whole = folder.metrics_file.read_bytes().rpartition(b"\n")[0]  # the line that is being written just now is none yet
    return json.loads(whole.rpartition(b"\n")[2])["step"] if whole else 0


def lay_out(arms: Sequence[Arm], seeds: Sequence[int], settings: Settings, runs_dir: Path) -> list[CellRun]:
    """All cells, seed by seed, so that the first seed is compared before the second begins. Raises ConfigError for settings that
    are wrong in any arm, and for a cell on disk that was run with others."""
    full = settings.config(Arm("full", (), ""), seeds[0])
    for arm in arms:
        require_same_measure(arm, settings.config(arm, seeds[0]), full)
    cells = [CellRun(arm, seed, settings, runs_dir) for seed in seeds for arm in arms]
    for cell in cells:
        refuse_other_settings(cell)
    return cells


def refuse_other_settings(cell: CellRun) -> None:
    """Raises ConfigError naming the first key in which the cell's run differs from what is asked: its settings, or what its world held."""
    if not cell.folder.config_file.exists():
        return
    there, asked = from_the_root(cell.folder.config()), from_the_root(cell.config)
    if there.world.fingerprint is not None:  # runs of an earlier SESA say nothing of their world
        asked = pinned(asked)
    if config_hash(there) != config_hash(asked):
        key, has, wants = next(_differences(there.model_dump(mode="json"), asked.model_dump(mode="json")))
        hint = f"{cell.folder.path} was run with {has!r}; the cells of an experiment differ in arm and seed alone: give another --runs-dir"
        raise ConfigError(key, wants, hint)


def _differences(there: dict, asked: dict, prefix: str = ""):
    for name in asked:
        if prefix + name in PLACES or there.get(name) == asked[name]:
            continue
        if isinstance(asked[name], dict) and isinstance(there.get(name), dict):
            yield from _differences(there[name], asked[name], f"{prefix}{name}.")
        else:
            yield prefix + name, there.get(name), asked[name]


def experiment(cells: Sequence[CellRun], statuses: Sequence[Status], command: str) -> Experiment:
    """What a document is made of, as the cells stand. Cells are listed arm by arm."""
    arms = list({cell.arm.name: cell.arm for cell in cells}.values())
    full = cells[0].settings.config(Arm("full", (), ""), cells[0].seed)
    rows = [Cell(c.arm.name, c.seed, str(s), c.result() if s.kind == "done" else None) for c, s in zip(cells, statuses, strict=True)]
    order = [arm.name for arm in arms]
    return Experiment(
        command=command,
        config=full,
        arms=arms,
        cells=sorted(rows, key=lambda row: (order.index(row.arm), row.seed)),
        unmatched={arm.name: matched(cells[0].settings.config(arm, cells[0].seed), full) for arm in arms},
    )


@dataclass(frozen=True)
class Driven:
    """A cell that runs: its process (None: another one drives it), and how long its screen file was before."""

    process: subprocess.Popen[bytes] | None
    said_before: int = 0


@dataclass
class Bench:
    """Runs cells, `jobs` at a time. `changed` is told whenever one began or ended, `looked` at every look."""

    cells: Sequence[CellRun]
    jobs: int
    changed: Callable[[CellRun], None]
    looked: Callable[[], None]
    wishes: int = 0  # to stop: one lets running cells end their step, two break them off
    driven: dict[str, Driven] = field(default_factory=dict)
    known: dict[str, Status] = field(default_factory=dict)  # of cells that are not driven: they change when they begin or end alone

    def ask_to_stop(self) -> None:
        self.wishes += 1

    def statuses(self) -> list[Status]:
        """In the order of the cells."""
        for cell in self.cells:
            if cell.folder.name in self.driven:
                self.known[cell.folder.name] = stand(cell, running=True)
            elif cell.folder.name not in self.known:
                self.known[cell.folder.name] = stand(cell)
        return [self.known[cell.folder.name] for cell in self.cells]

    def run(self) -> None:
        """Until every cell has ended, or those that were running when a person asked to stop."""
        waiting = deque(cell for cell in self.cells if not cell.folder.complete)
        while self.driven or (waiting and not self.wishes):
            while waiting and len(self.driven) < self.jobs and not self.wishes:
                self._begin(waiting.popleft())
            for cell in [c for c in self.cells if c.folder.name in self.driven]:
                if self._ended(cell):
                    del self.driven[cell.folder.name]
                    self.known.pop(cell.folder.name, None)
                    self.changed(cell)
            self.looked()
            time.sleep(LOOK_S)

    def _begin(self, cell: CellRun) -> None:
        cell.failed_file.unlink(missing_ok=True)
        if cell.folder.config_file.exists() and is_live(cell.folder):
            self.driven[cell.folder.name] = Driven(None)
        else:
            self.driven[cell.folder.name] = start(cell)
        self.changed(cell)

    def _ended(self, cell: CellRun) -> bool:
        """Whether the cell runs no more; passes a wish to stop on, and keeps the reason of a failure."""
        driven = self.driven[cell.folder.name]
        if driven.process is None:
            self._pass_on_wish(cell)
            return self.wishes > 1 or not is_live(cell.folder)
        if (code := driven.process.poll()) is None:
            self._pass_on_wish(cell, driven.process)
            return False
        cell.folder.stop_file.unlink(missing_ok=True)  # one that came when the run was just leaving
        if code not in (0, STOPPED) and not self.wishes > 1:
            cell.failed_file.write_text(last_words(cell.screen_file, driven.said_before, code) + "\n")
        return True

    def _pass_on_wish(self, cell: CellRun, process: subprocess.Popen[bytes] | None = None) -> None:
        """Again at every look: a run that is just starting forgets a wish that was older than itself."""
        if self.wishes > 1 and process is not None:
            process.kill()  # a run may be killed anywhere; its own server and judge go with it
        elif self.wishes and cell.folder.config_file.exists():
            cell.folder.stop_file.touch()


def start(cell: CellRun) -> Driven:
    """In a session of its own: the terminal's Ctrl-C is ours to pass on."""
    with cell.screen_file.open("ab") as screen:
        said_before = screen.tell()
        process = subprocess.Popen(cell.command(), stdin=subprocess.DEVNULL, stdout=screen, stderr=screen, start_new_session=True)
    return Driven(process, said_before)


def last_words(screen_file: Path, said_before: int, code: int) -> str:
    """Why a run failed: its error in one line."""
    if code < 0:
        return f"killed by signal {-code}"
    said = screen_file.read_bytes()[said_before:].decode(errors="replace")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return (errors or lines or [f"exit code {code}"])[-1]
