"""A run that is open in this process: its parts, and what flows and tasks ask of them.

Flow and task parameters are plain data (a run's folder, a segment's number); what they name is looked up here. Invariants:
the truth is the last row of `boundaries`, read from the bank each time; policies are brought to a boundary by the hashes that
its row names. Edge case: boundary 0 has no checkpoints: there the policies stand at the warm start.
"""

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from sesa_core.bank.boundary import BoundaryReport, SegmentCommit, commit_segment, initialise, recover
from sesa_core.bank.snapshot import BankSnapshot
from sesa_core.bank.store import BankStore
from sesa_core.bank.tables import BoundaryRow
from sesa_core.cards.schema import SkillCard
from sesa_core.config.load import config_hash
from sesa_core.config.models import RunConfig
from sesa_core.distill.select import select_failures, waiting
from sesa_core.errors import CheckpointMismatch, UserError
from sesa_core.evaluation.runner import EvaluationQuestion, evaluate
from sesa_core.judge.base import Judge
from sesa_core.report.pace import TRAIN
from sesa_core.report.terminal import Display, where_text
from sesa_core.rollout.answers import AnswerJudge
from sesa_core.rollout.loop import Table
from sesa_core.rollout.verify import Verifier
from sesa_core.training.checkpoint import read_state
from sesa_core.training.host import Host
from sesa_core.training.run_folder import RunFolder
from sesa_core.training.segment import ALARMS_FILE, STATE_FILE, SegmentResult, StopRequested, file_hash, latest_complete_result, run_segment
from sesa_core.training.selfplay import SelfPlay, SelfPlayState
from sesa_core.types import Failure, Role
from tasks.judge_batch import JudgeBatch, run_identity

GREEDY, SAMPLED = "evaluate greedy", "evaluate sampled"  # kinds of stage, as a display counts them


@dataclass(frozen=True)
class WorldParts:
    """What the world gives: fresh self-play state, questions to evaluate, and what no card or question may hold."""

    fresh_state: Callable[[], SelfPlayState]
    questions: tuple[EvaluationQuestion, ...]
    held_out: frozenset[str]  # normalised
    names: tuple[str, ...]


@dataclass
class LiveRun:
    """`judge` is None for a run that was opened for reading only, and for one whose settings call none."""

    folder: RunFolder
    config: RunConfig
    store: BankStore
    seeds: tuple[SkillCard, ...]
    host: Host
    solver_table: Table
    verifier: Verifier
    world: WorldParts
    judge: Judge | None
    answer_judge: AnswerJudge | None  # None: answers are checked by exact match alone
    display: Display

    # -- where the run stands

    def last_segment(self) -> int:
        """The newest committed segment; 0 at the start, -1 before boundary 0."""
        return max((r.segment or 0 for r in self.store.boundaries()), default=-1)

    @cached_property
    def identity(self) -> str:
        """Names this run and no other, also none that lay in the same folder before it was deleted."""
        return run_identity(self.store)

    def segment_row(self, segment: int) -> BoundaryRow:
        """The boundary that committed this segment; boundary 0 for segment 0."""
        known = {r.segment or 0: r for r in self.store.boundaries() if r.kind in ("segment", "start")}
        if not known:
            raise UserError(f"{self.folder.name} has no boundary yet; go on with: {self.folder.resume_command}")
        if segment not in known:
            raise UserError(f"{self.folder.name} has no boundary of segment {segment}; the newest is that of segment {max(known)}")
        return known[segment]

    def recover(self) -> int:
        """Take back what no boundary pins, make boundary 0 if there is none. Returns the newest committed segment."""
        recover(self.store)
        initialise(self.store, self.seeds, checkpoints={}, config_hash=config_hash(self.config), max_cards=self.config.bank.max_cards)
        return self.last_segment()

    def stop_requested(self) -> bool:
        return self.folder.stop_file.exists()

    def show_stage(self, kind: str, segment: int, text: str) -> None:
        """Tell the display what happens now, and after how many steps of which segment."""
        plan = self.config.selfplay
        steps = (segment - (kind == TRAIN)) * plan.steps_per_segment
        where = where_text(segment, plan.segments, steps, plan.segments * plan.steps_per_segment)
        self.display.stage(kind, f"{where} · {text}")

    # -- policies

    def stand_at(self, segment: int) -> SelfPlayState:
        """Bring both policies to the boundary of `segment` (nothing happens if they are there); the self-play state of then."""
        row, state = self.segment_row(segment), self.world.fresh_state()
        if not row.checkpoints:
            self.host.prepare(None)
            return state
        paths = {name: self._verified(name, entry) for name, entry in row.checkpoints.items()}
        self.host.prepare({role: paths[role.value] for role in Role})
        state.load(paths["selfplay"])
        return state

    def _verified(self, name: str, entry: Mapping[str, str]) -> Path:
        path = self.folder.path / entry["path"]
        if not path.exists():
            raise UserError(f"{path} is gone: retention keeps the checkpoints of the last {self.config.retention.checkpoints} boundaries")
        found = file_hash(path) if path.is_file() else read_state(path, name).digest
        if found != entry["hash"]:
            raise CheckpointMismatch(f"{path} is not the checkpoint that its boundary names")
        return path

    # -- a segment

    def finished(self, segment: int) -> SegmentResult | None:
        """An attempt at this segment that was trained to its end, verified, and not yet committed."""
        return latest_complete_result(self.folder.path, segment)

    def train(self, segment: int) -> SegmentResult:
        """One attempt from the boundary before. Raises `StopRequested` if a person asked for it between two steps."""
        self.show_stage(TRAIN, segment, "bringing both policies to the last boundary")
        state = self.stand_at(segment - 1)
        game = SelfPlay(
            config=self.config,
            engines={role: self.host.engine(role) for role in Role},
            transcript=self.solver_table.transcript,
            search=self.solver_table.search,
            verifier=self.verifier,
            snapshot=self._newest_snapshot(),
            state=state,
            held_out=self.world.held_out,
            answer_judge=self.answer_judge,
        )
        return run_segment(game, self.folder.path, segment, self.display.progress, self.stop_requested)

    def _newest_snapshot(self) -> BankSnapshot | None:
        """Of the last boundary, whatever its kind: a person's edit since the last segment counts."""
        return BankSnapshot.open(self.store) if self.config.bank.enabled else None

    def select(self, result: SegmentResult | None, judged: Collection[str] = ()) -> list[Failure]:
        """What goes to the judge next: of the failures that wait and those of a trained segment, without those that were just judged.

        Nothing without `distill.enabled`.
        """
        if not self.config.distill.enabled:
            return []
        fresh = result.evidence().failures if result is not None else ()
        pending = waiting(self.store.read_failures(), fresh)
        return select_failures([p for p in pending if p.failure.failure_id not in judged], self.config.queue)

    def commit(self, result: SegmentResult, judged: list[str]) -> BoundaryReport:
        """The boundary of a trained segment, with every usable reply about the failures in `judged` and those that a person had asked
        for again meanwhile (`sesa judge retry`)."""
        self.show_stage("boundary", result.segment, "gate and boundary")
        judged = sorted({*judged, *(p.failure.failure_id for p in self.store.pending_failures())})
        judge = self.judge
        replies = self.store.stored_distillations(judged, judge.prompt_hash, judge.model) if judge is not None else []
        commit = SegmentCommit(
            segment=result.segment,
            attempt=result.attempt,
            evidence=result.evidence(),
            replies=replies,
            failed_attempts=self.store.count_attempts(judged),
            checkpoints=self._references(result),
            config_hash=config_hash(self.config),
            metrics=result.metrics,
            bank=self.config.bank,
            queue=self.config.queue,
            lexicon=self.world.names,
            evaluation_questions=self.world.held_out,
        )
        return commit_segment(self.store, commit)

    def _references(self, result: SegmentResult) -> dict[str, dict[str, str]]:
        """Checkpoints by place inside the run's folder, which may move, and by content."""
        inside = Path(result.folder).resolve().relative_to(self.folder.path.resolve())
        hashes = {role.value: read_state(Path(result.checkpoints[role.value]), role).digest for role in Role}
        hashes["selfplay"] = result.files[f"checkpoints/{STATE_FILE}"]
        names = {role.value: role.value for role in Role} | {"selfplay": STATE_FILE}
        return {key: {"path": str(inside / "checkpoints" / names[key]), "hash": hashes[key]} for key in names}

    # -- the judge

    def batch(self, segment: int, failures: Sequence[Failure]) -> JudgeBatch:
        """The calls about what was selected at the boundary of a segment."""
        return JudgeBatch(failures, self.judge, self.store, self.config.judge, self.config.distill, self.folder.judge_table(segment))

    def judge_rows(self, segment: int) -> list[dict[str, Any]]:
        """The judge tables of the batches that the boundary of a segment took in; empty if nothing was asked."""
        plan, overlap = self.config.selfplay, self.config.distill.overlap
        batches = [*([segment - 1] if overlap else []), *([segment] if not overlap or segment == plan.segments else [])]
        files = (self.folder.judge_table(number) for number in batches)
        return [row for file in files if file.exists() for row in json.loads(file.read_text())]

    def alarms(self, segment: int) -> list[dict[str, Any]]:
        """What was not healthy in a committed segment."""
        file = self.folder.segment_dir(segment) / f"attempt-{self.segment_row(segment).attempt}" / ALARMS_FILE
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    # -- evaluation

    def evaluate(self, segment: int) -> dict[str, Any]:
        """Accuracy at the boundary of a segment. Measured once: the stored report is given again.

        Raises `StopRequested` between two turns if a person asked for it; nothing is kept then.
        """
        file = self.folder.evaluation_file(segment)
        if file.exists():
            return json.loads(file.read_text())
        report = self.measure(segment, self.stop_requested)
        file.parent.mkdir(exist_ok=True)
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(report))
        os.replace(partial, file)
        return report

    def measure(self, segment: int, should_stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
        """As `evaluate`, without looking at or leaving a file."""
        self.stand_at(segment)
        snapshot = BankSnapshot.open(self.store, self.segment_row(segment).boundary_id)
        table = replace(self.solver_table, on_turn=lambda turn, playing: self._watch(segment, turn, playing, should_stop))
        announce = partial(self._announce, segment)
        return evaluate(self.world.questions, table, snapshot, self.config, announce, self.answer_judge).as_dict()

    def _announce(self, segment: int, mode: str) -> None:
        if mode == "judge":
            self.display.phase("asking the judge about the answers that equal no reference")
            return
        if mode == "sampled" and not self.config.evaluation.samples:
            return
        kind, how = {"greedy": (GREEDY, "greedy"), "sampled": (SAMPLED, "at temperature 1")}[mode]
        self.show_stage(kind, segment, f"evaluating {len(self.world.questions)} held-out questions, {how}")

    def _watch(self, segment: int, turn: int, playing: int, should_stop: Callable[[], bool]) -> None:
        """Before each turn of an evaluation: show it, and look whether a person asked to stop."""
        if should_stop():
            raise StopRequested(f"stopped while segment {segment} was evaluated; it will be evaluated again")
        self.display.phase(f"turn {turn + 1}, {playing} games playing")


_OPEN: dict[Path, LiveRun] = {}


def register(run: LiveRun) -> None:
    _OPEN[run.folder.path.resolve()] = run


def forget(run: LiveRun) -> None:
    del _OPEN[run.folder.path.resolve()]


def find_live(run_dir: str | Path) -> LiveRun | None:
    """The run of that folder if this process has it open."""
    return _OPEN.get(Path(run_dir).resolve())


def live(run_dir: str) -> LiveRun:
    """As `find_live`. Raises UserError for a task that was started outside its flow."""
    run = find_live(run_dir)
    if run is None:
        raise UserError(f"{run_dir} is not open in this process; it is opened by the flow `train`")
    return run
