"""The judge calls of one batch of failures: who is asked how often, and when the judge is left alone.

Owns the batch's judge table. Invariants: a reply is stored in the bank before `ask` returns it; a call that was made and had no
answer counts as one attempt at its failure, one that was not made as none. Edge case: a judge that says 429 with a time is left
alone by the whole batch until then, since the limit is the endpoint's and not one failure's; it is never waited for longer than
`longest_wait_s`.
"""

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from sesa_core.bank.store import BankStore
from sesa_core.config.models import DistillSettings, JudgeSettings
from sesa_core.distill.breaker import Breaker
from sesa_core.distill.budget import JudgeBudget
from sesa_core.distill.distill import distill_one
from sesa_core.distill.pace import Pace
from sesa_core.errors import (
    JudgeRateLimited,
    JudgeRejected,
    JudgeReplyUnusable,
    JudgeResting,
    JudgeUnavailable,
    JudgeWaitOver,
    ServiceError,
    UserError,
)
from sesa_core.judge.base import Distillation, Judge, ReplyState
from sesa_core.types import Failure

LONGEST_WAIT_S = 120.0
T = TypeVar("T")


async def brought(calls: Mapping[str, Awaitable[T]]) -> dict[str, T | ServiceError]:
    """What each call brought, all at once; a service's failure stands in its place, any other error is raised."""
    outcomes = dict(zip(calls, await asyncio.gather(*calls.values(), return_exceptions=True), strict=True))
    for outcome in outcomes.values():
        if isinstance(outcome, BaseException) and not isinstance(outcome, ServiceError):
            raise outcome
    return outcomes


class JudgeBatch:
    """The calls about `failures`, as many and as fast as the settings allow. `file` is where the judge table is kept, if it is."""

    def __init__(
        self,
        failures: Sequence[Failure],
        judge: Judge,
        store: BankStore,
        settings: JudgeSettings,
        distill: DistillSettings = DistillSettings(),  # noqa: B008
        file: Path | None = None,
        longest_wait_s: float = LONGEST_WAIT_S,
    ) -> None:
        self.rows: list[dict[str, Any]] = []  # the judge table, empty until all calls are done
        self.judge, self.settings = judge, settings
        self._failures = {f.failure_id: f for f in failures}
        self._store, self._file = store, file
        self._slots, self._calls = asyncio.Semaphore(settings.concurrency), Counter[str]()
        self._unanswered: dict[str, str] = {}  # failure id -> what its last call without an answer said
        self._pace = Pace(settings.requests_per_minute, longest_wait_s)
        self._breaker = Breaker(distill.give_up_after, distill.probe_after_s)
        self._budget = JudgeBudget(settings, (call.usage for call in store.judge_calls()))
        self._over_at = float("inf")  # on the monotonic clock

    @cached_property
    def run(self) -> str:
        """Names the bank's run and no other, also none that lay in the same folder before it was deleted."""
        return run_identity(self._store)

    def close_in(self, seconds: float) -> None:
        """From then on no call is started; those in flight come to their end. Any thread may say so."""
        self._over_at = time.monotonic() + seconds

    def worth_repeating(self, error: BaseException | None) -> bool:
        """Only a judge that is down or overloaded gets the same call again, as long as somebody waits for it."""
        return isinstance(error, JudgeUnavailable | JudgeResting) and time.monotonic() < self._over_at

    async def ask(self, failure_id: str) -> Distillation:
        """The reply about one failure, stored before this returns. Raises as the judge does, or JudgeNotCalled."""
        stored = self._store.stored_distillations([failure_id], self.judge.prompt_hash, self.judge.model)
        if stored:
            return stored[0]
        async with self._slots:
            await self._pace.wait()
            if time.monotonic() >= self._over_at:
                raise JudgeWaitOver("not called: the run has waited for this batch as long as it may")
            self._breaker.require()
            cuts = self._store.count_cut_replies(failure_id, self.judge.prompt_hash, self.judge.model)
            room = max(self.settings.max_tokens, min(self.settings.most_tokens, self.settings.max_tokens * 2**cuts))
            with self._budget.call(room) as settle:
                reply = await self._call(failure_id, room)
                settle(reply.usage)
                return reply

    async def _call(self, failure_id: str, room: int) -> Distillation:
        self._calls[failure_id] += 1
        try:
            reply = await distill_one(self._failures[failure_id], self.judge, self._store.store_distillation, max_tokens=room)
        except (JudgeUnavailable, JudgeRejected) as trouble:
            self._unanswered[failure_id] = str(trouble)
            if isinstance(trouble, JudgeRateLimited):
                self._pace.rest(trouble.retry_after or 0.0)
            if isinstance(trouble, JudgeRateLimited | JudgeRejected):  # it said something
                self._breaker.answered()
            else:
                self._breaker.silent()
            raise
        self._breaker.answered()
        return reply

    async def ask_for_use(self, failure_id: str) -> Distillation:
        """As `ask`; raises JudgeReplyUnusable for a reply that is no answer."""
        reply = await self.ask(failure_id)
        if reply.state is not ReplyState.OK:
            raise JudgeReplyUnusable(f"{reply.state}: {reply.reason}")
        return reply

    def note(self, outcomes: Mapping[str, Mapping[str, Any] | ServiceError]) -> int:
        """Keep what came of each call as a row of the judge table; returns how many brought no usable reply.

        A failure that was called about in vain is one attempt older, however often the call was repeated just now.
        """
        for failure_id, outcome in outcomes.items():
            failed = isinstance(outcome, ServiceError)
            if failed and not isinstance(outcome, JudgeReplyUnusable) and failure_id in self._unanswered:
                self._store.store_failed_call(failure_id, self.judge.prompt_hash, self.judge.model, self._unanswered[failure_id])
            row = {"status": str(outcome), "tokens": 0} if failed else outcome
            self.rows.append({"failure": failure_id, "calls": self._calls[failure_id], **row})
        if self._file is not None:
            self._file.parent.mkdir(exist_ok=True)
            partial = self._file.with_suffix(".partial")
            partial.write_text(json.dumps(self.rows, ensure_ascii=False))
            os.replace(partial, self._file)
        return sum(isinstance(o, ServiceError) for o in outcomes.values())


def run_identity(store: BankStore) -> str:
    """Names a run by its bank's first boundary."""
    return f"{store.run} {store.boundaries()[0].committed_at}"


_AT_WORK: dict[Path, JudgeBatch] = {}


@contextmanager
def at_work(run_dir: str | Path, batch: JudgeBatch) -> Iterator[JudgeBatch]:
    """Let the tasks of this process find the run's batch while the block lasts."""
    place = Path(run_dir).resolve()
    _AT_WORK[place] = batch
    try:
        yield batch
    finally:
        del _AT_WORK[place]


def find_batch(run_dir: str | Path) -> JudgeBatch | None:
    return _AT_WORK.get(Path(run_dir).resolve())


def batch_of(run_dir: str | Path) -> JudgeBatch:
    """As `find_batch`. Raises UserError for a task that was started outside its flow."""
    batch = find_batch(run_dir)
    if batch is None:
        raise UserError(f"no judge calls about {run_dir} are under way in this process; they are begun by the flow `distill_batch`")
    return batch
