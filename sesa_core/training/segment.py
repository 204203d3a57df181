"""One attempt at one segment: ten steps, their evidence, and staged checkpoints, all in a folder of its own.

Owns `segments/00017/attempt-2/`. Invariant: `result.json` is written last and names every file with its hash, so an attempt
either has a complete, verifiable result or counts for nothing; attempts never share a file.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

from sesa_core.errors import CheckpointMismatch, UnhealthyRun
from sesa_core.training.evidence import append_step, read_segment
from sesa_core.training.health import Alarm, Health
from sesa_core.training.records import write_trajectories
from sesa_core.training.selfplay import SelfPlay
from sesa_core.training.step import Progress, StepRecord, play_step
from sesa_core.types import Role, SegmentEvidence

STATE_FILE, ALARMS_FILE = "selfplay.json", "alarms.jsonl"


@dataclass(frozen=True)
class SegmentResult:
    """What a finished attempt left on disk. `folder` is absolute; `files` maps relative paths to SHA-256."""

    segment: int
    attempt: int
    folder: str
    last_step: int
    policy_versions: dict[str, int]
    metrics: dict[str, float]  # means over the steps
    files: dict[str, str]

    @property
    def checkpoints(self) -> dict[str, str]:
        """Absolute paths: both roles' policies and the self-play state."""
        root = Path(self.folder) / "checkpoints"
        return {role.value: str(root / role) for role in Role} | {"selfplay": str(root / STATE_FILE)}

    def evidence(self) -> SegmentEvidence:
        return read_segment(Path(self.folder) / "evidence.jsonl", self.segment, self.attempt)


class StopRequested(Exception):
    """A person asked to stop; the step in progress was finished, the attempt is abandoned and nothing was committed."""


def segment_folder(run_dir: Path, segment: int) -> Path:
    return run_dir / "segments" / f"{segment:05d}"


def next_attempt(run_dir: Path, segment: int) -> int:
    """The number of the next attempt at a segment, counted from 1."""
    taken = [int(p.name.removeprefix("attempt-")) for p in segment_folder(run_dir, segment).glob("attempt-*")]
    return max(taken, default=0) + 1


def run_segment(
    game: SelfPlay,
    run_dir: Path,
    segment: int,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> SegmentResult:
    """Play the segment's steps from where `game` stands. Raises `StopRequested` between two steps if asked to.

    After the last step there is nothing left to stop: the segment is finished and kept.
    """
    attempt = next_attempt(run_dir, segment)
    folder = (segment_folder(run_dir, segment) / f"attempt-{attempt}").resolve()
    folder.mkdir(parents=True)
    steps = game.config.selfplay.steps_per_segment
    first = (segment - 1) * steps + 1
    history: list[dict[str, float]] = []
    health = Health(game.config.health, game.state.streaks)
    for step in range(first, first + steps):
        where = Progress(segment, game.config.selfplay.segments, step, game.config.selfplay.segments * steps, "")
        record = play_step(game, step, lambda phase, where=where: on_progress(replace(where, phase=phase)))
        alarms = health.look(step, record.metrics)
        write_step(folder, run_dir, record, segment, attempt, alarms)
        history.append(record.metrics)
        on_progress(replace(where, phase="step done", metrics=record.metrics, alarms=tuple(map(str, alarms))))
        if (alarm := health.stops(alarms)) is not None:
            raise UnhealthyRun(f"{alarm}; health.stop_on in {run_dir / 'config.yaml'} asks to stop then, and a resumed run goes by it too")
        if step < first + steps - 1 and should_stop():
            raise StopRequested(f"stopped after step {step}; segment {segment} will be trained again from its start")
    save_checkpoints(game, folder)
    return finish(game, folder, segment, attempt, history)


def write_step(folder: Path, run_dir: Path, record: StepRecord, segment: int, attempt: int, alarms: Sequence[Alarm]) -> None:
    """Evidence, trajectories and alarms into the attempt's folder, metrics also into the run's stream."""
    with (folder / ALARMS_FILE).open("a") as file:
        file.writelines(json.dumps(alarm.as_json()) + "\n" for alarm in alarms)
    append_step(folder / "evidence.jsonl", record.evidence)
    write_trajectories(folder / "trajectories" / f"step-{record.step:05d}.parquet", record)
    line = json.dumps({"segment": segment, "attempt": attempt, "step": record.step, **record.metrics})
    for path in (folder / "metrics.jsonl", run_dir / "metrics.jsonl"):
        with path.open("a") as file:
            file.write(line + "\n")


def save_checkpoints(game: SelfPlay, folder: Path) -> None:
    root = folder / "checkpoints"
    root.mkdir(exist_ok=True)
    for role, engine in game.engines.items():
        engine.save(root / role)
    game.state.save(root / STATE_FILE)


def finish(game: SelfPlay, folder: Path, segment: int, attempt: int, history: list[dict[str, float]]) -> SegmentResult:
    names = sorted({name for row in history for name in row})
    means = {name: fmean(row[name] for row in history if name in row) for name in names}
    result = SegmentResult(
        segment=segment,
        attempt=attempt,
        folder=str(folder),
        last_step=game.state.step,
        policy_versions={role.value: engine.policy_version for role, engine in game.engines.items()},
        metrics=means,
        files={str(p.relative_to(folder)): file_hash(p) for p in sorted(folder.rglob("*")) if p.is_file()},
    )
    staged = folder / "result.json.part"
    staged.write_text(json.dumps(asdict(result), indent=1))
    staged.rename(folder / "result.json")
    return result


def file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_segment_result(folder: Path) -> SegmentResult:
    """A finished attempt, every file verified. Raises `CheckpointMismatch` naming the file that differs or is missing."""
    result = SegmentResult(**json.loads((folder / "result.json").read_text()))
    result = replace(result, folder=str(folder.resolve()))
    for name, expected in result.files.items():
        path = folder / name
        if not path.exists() or file_hash(path) != expected:
            raise CheckpointMismatch(f"{path} is missing or is not the file that result.json names")
    return result


def latest_complete_result(run_dir: Path, segment: int) -> SegmentResult | None:
    """The newest attempt at this segment that finished and verifies; damaged ones are passed over."""
    folders = sorted(segment_folder(run_dir, segment).glob("attempt-*"), key=lambda p: int(p.name.removeprefix("attempt-")))
    for folder in reversed(folders):
        if (folder / "result.json").exists():
            try:
                return load_segment_result(folder)
            except CheckpointMismatch:
                continue
    return None
