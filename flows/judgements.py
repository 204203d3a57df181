"""Judge calls that brought nothing, made again: by a person (`sesa judge retry`), or as the deployment `retry_failed_judgements`.

Invariant: a call is made about exactly the failures whose earlier calls brought no usable reply, and each reply is stored the
moment it arrives. Edge case: while a run is trained its bank has another writer; then the replies wait, and the run's next
boundary takes them in.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.composition import build_world, entity_names, held_out_questions, open_bank, open_judge
from sesa_core.bank.boundary import commit_judged
from sesa_core.bank.segment import BoundaryReport, JudgeCommit
from sesa_core.bank.tables import DEAD, PENDING
from sesa_core.config.models import RunConfig
from sesa_core.errors import BankBusy, ServiceError
from sesa_core.training.run_folder import RunFolder
from sesa_core.types import Failure
from tasks.judge_batch import JudgeBatch, brought

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
    with open_judge(config) as judge:
        with open_bank(folder, config, write=False) as store:
            failures = failed_calls(store, dead=dead)
            called = _without_reply(store, judge, failures)
            trouble = asyncio.run(_ask(failures, judge, store, config)) if failures else {}
        if len(trouble) == len(failures):
            return Retried(len(called), trouble)
        try:
            with open_bank(folder, config, write=True) as store:
                return Retried(len(called), trouble, _commit(store, judge, config, [f.failure_id for f in failures], by, why))
        except BankBusy:
            return Retried(len(called), trouble, left_to_run=True)


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
    batch = JudgeBatch(failures, judge, store, config.judge)
    outcomes = await brought({f.failure_id: batch.ask_for_use(f.failure_id) for f in failures})
    errors = {name: error for name, error in outcomes.items() if isinstance(error, ServiceError)}
    batch.note(errors)
    return {name: str(error) for name, error in errors.items()}


def _commit(store: "BankStore", judge: "OpenAIJudge", config: RunConfig, ids: list[str], by: str, why: str) -> BoundaryReport:
    world = build_world(config)
    commit = JudgeCommit(
        replies=store.stored_distillations(ids, judge.prompt_hash, judge.model),
        failed_attempts=store.count_attempts(ids),
        bank=config.bank,
        queue=config.queue,
        lexicon=entity_names(world),
        evaluation_questions=held_out_questions(world, config),
        by=by or store.owner,
        why=why,
    )
    return commit_judged(store, commit)
