"""A run's folder: where everything of one run lies, how runs are named, found, held by one process and asked to stop.

runs/<name>/ config.yaml · bank/ · segments/00001/attempt-1/ · evaluations/ · metrics.jsonl · log.txt · report.json

Invariant: a run's folder appears with its config.yaml in it, whole or not at all; it is complete when it holds report.json.
One live process holds a run: the lock is the operating system's, so a killed process never leaves one behind. Edge case: two
`sesa run` without a name at the same moment get different numbers, since names are given one at a time.
"""

import contextlib
import difflib
import json
import re
import shlex
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from sesa_core.config.load import load_config, save_config
from sesa_core.config.models import RunConfig
from sesa_core.errors import ConfigError, MissingRun, UserError

RUN_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
USUAL_RUNS_DIR = Path("runs")
STAGING = ".new"  # where a run's folder is made, before it gets its name


@dataclass(frozen=True)
class RunFolder:
    """The places inside one run's folder. Nothing here is created by asking for it."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def config_file(self) -> Path:
        return self.path / "config.yaml"

    @property
    def log_file(self) -> Path:
        return self.path / "log.txt"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def report_file(self) -> Path:
        return self.path / "report.json"

    @property
    def stop_file(self) -> Path:
        return self.path / "stop"

    @property
    def prefect_home(self) -> Path:
        """Where the run's own Prefect server keeps its database and results."""
        return self.path / ".prefect"

    @property
    def complete(self) -> bool:
        return self.report_file.exists()

    @property
    def where(self) -> str:
        """What a command must be told to find this run beside its name; nothing for the usual folder."""
        parent = self.path.parent
        return "" if parent.resolve() == USUAL_RUNS_DIR.resolve() else f" --runs-dir {shlex.quote(str(parent))}"

    @property
    def resume_command(self) -> str:
        return f"sesa run --resume --name {self.name}{self.where}"

    def config(self) -> RunConfig:
        """The settings this run was started with; its `runs_dir` is where the folder lies now."""
        return load_config(file=self.config_file).model_copy(update={"runs_dir": str(self.path.parent)})

    def report(self) -> dict[str, Any]:
        return json.loads(self.report_file.read_text())

    def evaluation_file(self, boundary: int) -> Path:
        return self.path / "evaluations" / f"boundary-{boundary:05d}.json"

    def judge_table(self, segment: int) -> Path:
        """What came of the judge calls about the failures that were selected at the boundary of a segment."""
        return self.path / "judge" / f"segment-{segment:05d}.json"

    def segment_dir(self, segment: int) -> Path:
        return self.path / "segments" / f"{segment:05d}"

    def segments(self) -> list[int]:
        """Numbers of the segments that have left a folder, ascending."""
        return sorted(int(p.name) for p in (self.path / "segments").glob("*") if p.name.isdigit())

    def attempts(self, segment: int) -> list[int]:
        """Numbers of the attempts at this segment that have left a folder, ascending."""
        names = (p.name.removeprefix("attempt-") for p in self.segment_dir(segment).glob("attempt-*"))
        return sorted(int(n) for n in names if n.isdigit())

    def bank_uri(self, config: RunConfig) -> str:
        """Absolute: a bare name would be read as LanceDB's cloud."""
        return config.bank.uri or str((self.path / "bank").resolve())


def create_run(config: RunConfig, name: str | None = None) -> RunFolder:
    """Claim a name and save the settings there. Raises `ConfigError` for a bad name, `UserError` for one that is taken."""
    if name is not None and not RUN_NAME.fullmatch(name):
        raise ConfigError("--name", name, "a name holds lower-case letters, digits and hyphens, at most 63, and starts with no hyphen")
    runs_dir = Path(config.runs_dir)
    runs_dir.mkdir(parents=True, exist_ok=True)
    with FileLock(runs_dir / f"{STAGING}.lock"):
        run = RunFolder(runs_dir / (name or _next_number(runs_dir, config.preset)))
        if run.config_file.exists():
            raise UserError(f"there is already {run.path}; continue it with: {run.resume_command}")
        if run.path.exists() and (not run.path.is_dir() or any(run.path.iterdir())):
            raise UserError(f"{run.path} is in the way and is no run; give another --name")
        staged = RunFolder(runs_dir / STAGING)
        shutil.rmtree(staged.path, ignore_errors=True)  # of a process that was killed right here
        staged.path.mkdir()
        save_config(config, staged.config_file)
        staged.path.rename(run.path)  # takes the place of an empty folder too
    return run


def _next_number(runs_dir: Path, preset: str) -> str:
    numbers = (re.fullmatch(rf"{re.escape(preset)}-(\d+)", p.name) for p in runs_dir.iterdir())
    return f"{preset}-{max((int(m[1]) for m in numbers if m), default=0) + 1:03d}"


def runs(runs_dir: Path) -> list[RunFolder]:
    """All runs, the most recently started last."""
    found = [RunFolder(p.parent) for p in runs_dir.glob("*/config.yaml") if p.parent.name != STAGING]
    return sorted(found, key=lambda r: (r.config_file.stat().st_mtime_ns, r.name))


def find_run(runs_dir: Path, name: str | None = None) -> RunFolder:
    """The named run, or the newest. Raises `MissingRun`."""
    known = runs(runs_dir)
    if name is None and known:
        return known[-1]
    if name is None:
        raise MissingRun(f"there is no run in {runs_dir}; start one with: sesa run")
    found = next((r for r in known if r.name == name), None)
    if found is None:
        near = difflib.get_close_matches(name, [r.name for r in known], n=1)
        raise MissingRun(f"there is no run {name!r} in {runs_dir}" + (f"; did you mean {near[0]}?" if near else ""))
    return found


def find_unfinished(runs_dir: Path, name: str | None = None) -> RunFolder:
    """The run to resume: the named one, or the newest that is not complete. Raises `MissingRun`."""
    if name is not None:
        run = find_run(runs_dir, name)
        if run.complete:
            raise MissingRun(f"{name} is complete, there is nothing to resume; see {run.report_file}")
        return run
    unfinished = [r for r in runs(runs_dir) if not r.complete]
    if not unfinished:
        raise MissingRun(f"every run in {runs_dir} is complete, there is nothing to resume; start one with: sesa run")
    return unfinished[-1]


@contextlib.contextmanager
def hold(run: RunFolder) -> Iterator[None]:
    """Be the one process that drives this run. Raises `UserError` if another does."""
    try:
        with FileLock(run.path / ".lock", timeout=0):
            yield
    except Timeout:
        raise busy(run) from None


def busy(run: RunFolder) -> UserError:
    return UserError(f"{run.name} is being run by another process; stop it with: sesa stop {run.name}{run.where}")


def is_live(run: RunFolder) -> bool:
    """Whether some process holds this run right now."""
    try:
        with FileLock(run.path / ".lock", timeout=0):
            return False
    except Timeout:
        return True


def prune_checkpoints(run: RunFolder, kept: Collection[tuple[int, int]]) -> list[Path]:
    """Delete the checkpoints of every attempt that is not one of `kept` (segment, attempt); evidence and metrics stay.

    Call it only after a boundary is committed, when its own checkpoints are complete on disk. Returns what was deleted.
    """
    places = {(s, a): run.segment_dir(s) / f"attempt-{a}" / "checkpoints" for s in run.segments() for a in run.attempts(s)}
    stale = [folder for place, folder in places.items() if place not in kept and folder.exists()]
    for folder in stale:
        shutil.rmtree(folder)
    return stale
