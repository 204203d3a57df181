"""A run that is open in this process: its parts, and what flows and tasks ask of them.

Flow and task parameters are plain data (a run's folder, a segment's number); what they name is looked up here. Invariants:
the truth is the last row of `boundaries`, read from the bank each time; policies are brought to a boundary by the hashes that
its row names. Edge case: boundary 0 has no checkpoints: there the policies stand at the warm start.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sesa_core.bank.boundary import BoundaryReport, SegmentCommit, commit_segment, initialise, recover
from sesa_core.bank.queue import PendingFailure
from sesa_core.bank.snapshot import BankSnapshot
from sesa_core.bank.store import BankStore
from sesa_core.bank.tables import BoundaryRow
from sesa_core.cards.schema import SkillCard
from sesa_core.config.load import config_hash
from sesa_core.config.models import RunConfig
from sesa_core.distill.distill import distill_one
from sesa_core.distill.select import select_failures
from sesa_core.errors import CheckpointMismatch, JudgeRejected, JudgeUnavailable, ServiceError, UserError
from sesa_core.evaluation.runner import EvaluationQuestion, evaluate
from sesa_core.judge.base import Distillation, Judge
from sesa_core.report.terminal import Display
from sesa_core.rollout.loop import Table
from sesa_core.rollout.verify import Verifier
from sesa_core.training.checkpoint import read_state
from sesa_core.training.host import Host
from sesa_core.training.run_folder import RunFolder
from sesa_core.training.segment import STATE_FILE, SegmentResult, file_hash, latest_complete_result, run_segment
from sesa_core.training.selfplay import SelfPlay, SelfPlayState
from sesa_core.types import Failure, Role


@dataclass(frozen=True)
class WorldParts:
    """What the world gives: fresh self-play state, questions to evaluate, and what no card or question may hold."""

    fresh_state: Callable[[], SelfPlayState]
    questions: tuple[EvaluationQuestion, ...]
    held_out: frozenset[str]  # normalised
    names: tuple[str, ...]


@dataclass
class JudgeBatch:
    """The judge calls of one segment: `calls` counts requests by failure, `rows` is the judge table when all are done."""

    failures: dict[str, Failure]
    slots: asyncio.Semaphore
    calls: Counter[str] = field(default_factory=Counter)
    rows: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class LiveRun:
    """`judge` is None for a run that was opened for reading only."""

    folder: RunFolder
    config: RunConfig
    store: BankStore
    seeds: tuple[SkillCard, ...]
    host: Host
    solver_table: Table
    verifier: Verifier
    world: WorldParts
    judge: Judge | None
    display: Display
    batch: "JudgeBatch | None" = None  # the judge calls of the segment in progress

    # -- where the run stands

    def last_segment(self) -> int:
        """The newest committed segment; 0 at the start, -1 before boundary 0."""
        rows = self.store.boundaries()
        return max((r.segment or 0 for r in rows), default=-1)

    @cached_property
    def identity(self) -> str:
        """Names this run and no other, also none that lay in the same folder before it was deleted."""
        return f"{self.folder.name} {self.store.boundaries()[0].committed_at}"

    def segment_row(self, segment: int) -> BoundaryRow:
        """The boundary that committed this segment; boundary 0 for segment 0."""
        found = next((r for r in self.store.boundaries() if (r.segment or 0) == segment and r.kind in ("segment", "start")), None)
        if found is None:
            raise UserError(f"{self.folder.name} has no boundary of segment {segment}; the newest is {self.last_segment()}")
        return found

    def recover(self) -> int:
        """Take back what no boundary pins, make boundary 0 if there is none. Returns the newest committed segment."""
        recover(self.store)
        initialise(self.store, self.seeds, checkpoints={}, config_hash=config_hash(self.config), max_cards=self.config.bank.max_cards)
        return self.last_segment()

    def evaluation_due(self, segment: int) -> bool:
        """Whether the settings ask for an evaluation between two segments, here."""
        every = self.config.evaluation.every_segments
        return every > 0 and segment % every == 0 and segment < self.config.selfplay.segments

    def stop_requested(self) -> bool:
        return self.folder.stop_file.exists()

    # -- policies

    def stand_at(self, segment: int) -> SelfPlayState:
        """Bring both policies to the boundary of `segment` (nothing happens if they are there); the self-play state of then."""
        row, state = self.segment_row(segment), self.world.fresh_state()
        if not row.checkpoints:
            self.host.prepare(None, row.tag)
            return state
        paths = {name: self._verified(name, entry) for name, entry in row.checkpoints.items()}
        self.host.prepare({role: paths[role.value] for role in Role}, row.tag)
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
        self.display.stage("train", f"segment {segment} of {self.config.selfplay.segments}")
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
        )
        return run_segment(game, self.folder.path, segment, self.display.progress, self.stop_requested)

    def _newest_snapshot(self) -> BankSnapshot | None:
        """Of the last boundary, whatever its kind: a person's edit since the last segment counts."""
        return BankSnapshot.open(self.store) if self.config.bank.enabled else None

    def select(self, result: SegmentResult) -> list[Failure]:
        """What goes to the judge at this boundary: pending failures of before and those of the segment."""
        pending = {p.failure.failure_id: p for p in self.store.pending_failures()}
        known = {r.failure.failure_id for r in self.store.read_failures()}
        fresh = [f for f in result.evidence().failures if f.failure_id not in known]
        pending |= {f.failure_id: PendingFailure(f) for f in fresh}
        return select_failures(list(pending.values()), self.config.queue)

    def commit(self, result: SegmentResult, judged: list[str]) -> BoundaryReport:
        """The boundary of a trained segment, with every usable reply about the failures in `judged`."""
        self.display.stage("boundary", f"segment {result.segment}: gate and boundary")
        replies = self.store.stored_distillations(judged, self.judge.prompt_hash, self.judge.model)
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

    def open_batch(self, failures: Sequence[Failure]) -> None:
        """Make these failures known to the judge's tasks, with as many calls at once as the settings say."""
        self.batch = JudgeBatch({f.failure_id: f for f in failures}, asyncio.Semaphore(self.config.judge.concurrency))

    async def ask_judge(self, failure_id: str) -> Distillation:
        """The reply about a failure of the open batch, stored before this returns. Raises as the judge does."""
        key = (self.judge.prompt_hash, self.judge.model)
        stored = next(iter(self.store.stored_distillations([failure_id], *key)), None)
        async with self.batch.slots:
            self.batch.calls[failure_id] += stored is None
            return await distill_one(self.batch.failures[failure_id], self.judge, self.store.store_distillation, stored)

    def note_outcomes(self, outcomes: Mapping[str, Mapping[str, Any] | ServiceError]) -> int:
        """Keep what came of each call as a row of the judge table; returns how many brought no card.

        A call without a reply counts as one attempt at its failure, however often it was repeated just now.
        """
        for failure_id, outcome in outcomes.items():
            if isinstance(outcome, JudgeUnavailable | JudgeRejected):
                self.store.store_failed_call(failure_id, self.judge.prompt_hash, self.judge.model, str(outcome))
            row = {"status": str(outcome), "tokens": 0} if isinstance(outcome, ServiceError) else outcome
            self.batch.rows.append({"failure": failure_id, "calls": self.batch.calls[failure_id], **row})
        return sum(isinstance(o, ServiceError) for o in outcomes.values())

    # -- evaluation

    def evaluate(self, segment: int) -> dict[str, Any]:
        """Accuracy at the boundary of a segment. Measured once: the stored report is given again."""
        file = self.folder.evaluation_file(segment)
        if file.exists():
            return json.loads(file.read_text())
        report = self.measure(segment)
        file.parent.mkdir(exist_ok=True)
        partial = file.with_suffix(".partial")
        partial.write_text(json.dumps(report))
        os.replace(partial, file)
        return report

    def measure(self, segment: int) -> dict[str, Any]:
        """As `evaluate`, without looking at or leaving a file."""
        count = len(self.world.questions)

        def announce(mode: str) -> None:
            how = {"greedy": "greedy", "sampled": "at temperature 1"}[mode]
            self.display.stage(f"evaluate {mode}", f"evaluating {count} held-out questions after segment {segment}, {how}")

        self.stand_at(segment)
        snapshot = BankSnapshot.open(self.store, self.segment_row(segment).boundary_id)
        return evaluate(self.world.questions, self.solver_table, snapshot, self.config, announce).as_dict()


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
