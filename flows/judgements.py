"""Judge calls that brought nothing, made again: by a person (`sesa judge retry`), or as the deployment `retry_failed_judgements`.

Invariant: a call is made about exactly the failures whose earlier calls brought no usable reply, and each reply is stored the
moment it arrives. Edge case: while a run is trained its bank has another writer; then the replies wait, and the run's next
boundary takes them in.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.composition import open_bank, open_judge
from flows.worlds import build_world, held_out_questions
from sesa_core.bank.boundary import commit_judged, recover
from sesa_core.bank.segment import BoundaryReport, JudgeCommit
from sesa_core.bank.tables import DEAD, PENDING
from sesa_core.config.models import RunConfig
from sesa_core.errors import BankBusy, ServiceError
from sesa_core.judge.base import Distillation, Judge
from sesa_core.training.run_folder import RunFolder, is_live
from sesa_core.training.segment import latest_complete_result
from sesa_core.types import Failure
from tasks.judge_batch import JudgeBatch, at_work, brought

if TYPE_CHECKING:
    from sesa_core.bank.store import BankStore
    from sesa_core.judge.client import OpenAIJudge


@dataclass(frozen=True)
class Retried:
    """`trouble` says of each failure whose call brought nothing again what it was. `report` is None if there was nothing to commit,
    or if the run that is being trained will (`left_to_run`)."""

    asked: int
    trouble: Mapping[str, str]
    report: BoundaryReport | None = None
    left_to_run: bool = False

    def as_json(self) -> dict[str, Any]:
        told = {"asked": self.asked, "trouble": dict(self.trouble), "left_to_run": self.left_to_run}
        return told | {"boundary": self.report.as_json() if self.report is not None else None}


def retry_failed(folder: RunFolder, *, dead: bool = False, by: str = "", why: str = "") -> Retried:
    """Call the judge about every failure of the run that waits after a call without a usable reply (`dead`: also those that were
    given up), and commit what comes as a boundary of its own, unless the run is being trained just now."""
    config = folder.config()
    with open_judge(config) as judge, open_bank(folder, config, write=False) as store:
        failures = failed_calls(store, dead=dead)
        called = _without_reply(store, judge, failures)
        trouble = asyncio.run(_ask(failures, judge, store, config)) if failures else {}
    if len(trouble) == len(failures):
        return Retried(len(called), trouble)
    report, left = _commit_unless_live(folder, judge, [f.failure_id for f in failures], by, why)
    return Retried(len(called), trouble, report, left_to_run=left)


def failed_calls(store: "BankStore", *, dead: bool) -> list[Failure]:
    """The failures about which a call was made and that have no card or answer yet, by id; given-up ones only if `dead`."""
    wanted = (PENDING, DEAD) if dead else (PENDING,)
    records = {r.failure.failure_id: r.failure for r in store.read_failures() if r.state in wanted}
    asked = store.failures_asked_about(list(records))
    return [records[name] for name in sorted(asked)]


def _without_reply(store: "BankStore", judge: "OpenAIJudge", failures: list[Failure]) -> set[str]:
    """Ids of those about which a call has to be made: no usable reply is stored yet."""
    ids = [f.failure_id for f in failures]
    return set(ids) - {r.failure_id for r in store.stored_distillations(ids, judge.prompt_hash, judge.model)}


async def _ask(failures: list[Failure], judge: "OpenAIJudge", store: "BankStore", config: RunConfig) -> dict[str, str]:
    """What went wrong, by failure; nothing is said of the others. What was asked and did not come counts as an attempt."""
    batch = JudgeBatch(failures, judge, store, config.judge, config.distill)
    outcomes = await brought({f.failure_id: batch.ask_for_use(f.failure_id) for f in failures})
    errors = {name: error for name, error in outcomes.items() if isinstance(error, ServiceError)}
    batch.note(errors)
    return {name: str(error) for name, error in errors.items()}


@contextmanager
def batch_in_this_process(folder: RunFolder, number: int, failure_ids: Sequence[str]) -> Iterator[JudgeBatch]:
    """The calls about failures of a run that another process may be training: of its bank, or of evidence that is not yet committed."""
    config = folder.config()
    with open_judge(config) as judge, open_bank(folder, config, write=False) as store:
        staged = latest_complete_result(folder.path, number) if number else None
        known = {f.failure_id: f for f in (staged.evidence().failures if staged is not None else ())}
        known |= {r.failure.failure_id: r.failure for r in store.read_failures()}
        failures = [known[name] for name in failure_ids if name in known]
        batch = JudgeBatch(failures, judge, store, config.judge, config.distill, folder.judge_table(number))
        with at_work(folder.path, batch):
            yield batch


def commit_late(folder: RunFolder, judge: Judge, failure_ids: Sequence[str]) -> str:
    """Commit what this judge said about these failures, unless the run is being trained; says what became of it."""
    report, left = _commit_unless_live(folder, judge, failure_ids, "distill_batch", "")
    if report is not None:
        return f"boundary {report.tag}, {len(report.added)} cards added"
    return "the run is being trained and takes the replies in" if left else "nothing to commit"


def _commit_unless_live(folder: RunFolder, judge: Judge, ids: Sequence[str], by: str, why: str) -> tuple[BoundaryReport | None, bool]:
    """(the boundary of the usable replies about these failures, if there are any; whether they are left to the run's own process).

    A failure of which the bank knows nothing yet belongs to a segment that was trained and not committed: the run takes it in.
    """
    config = folder.config()
    if is_live(folder):
        return None, True
    try:
        with open_bank(folder, config, write=True) as store:
            recover(store)
            waiting = {r.failure.failure_id for r in store.read_failures() if r.state in (PENDING, DEAD)}
            known = sorted(waiting.intersection(ids))
            replies = store.stored_distillations(known, judge.prompt_hash, judge.model)
            return (_commit(store, replies, config, known, by, why), False) if replies else (None, False)
    except BankBusy:
        return None, True


def _commit(
    store: "BankStore", replies: Sequence[Distillation], config: RunConfig, ids: Sequence[str], by: str, why: str
) -> BoundaryReport:
    world = build_world(config)
    commit = JudgeCommit(
        replies=replies,
        failed_attempts=store.count_attempts(ids),
        bank=config.bank,
        queue=config.queue,
        lexicon=world.names,
        evaluation_questions=held_out_questions(config, world),
        by=by or store.owner,
        why=why,
    )
    return commit_judged(store, commit)
