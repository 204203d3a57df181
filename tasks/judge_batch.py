"""The judge calls of one segment, seen from the run that makes them: who is asked how often, and when the judge wants rest.

Owns the judge table of a segment (`judge.json` beside its evidence). Invariant: a reply is stored in the bank before `ask`
returns it. Edge case: a judge that says 429 with a time is left alone by the whole batch until then, since the limit is the
endpoint's and not one failure's; it is never waited for longer than `longest_wait_s`.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sesa_core.bank.store import BankStore
from sesa_core.config.models import JudgeSettings
from sesa_core.distill.budget import JudgeBudget
from sesa_core.distill.distill import distill_one
from sesa_core.distill.pace import Pace
from sesa_core.errors import JudgeRateLimited, JudgeRejected, JudgeReplyUnusable, JudgeUnavailable, ServiceError
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
    """The calls about `failures`, as many and as fast as `settings` allow. `file` is where the judge table is kept, if it is."""

    def __init__(
        self,
        failures: Sequence[Failure],
        judge: Judge,
        store: BankStore,
        settings: JudgeSettings,
        file: Path | None = None,
        longest_wait_s: float = LONGEST_WAIT_S,
    ) -> None:
        self.rows: list[dict[str, Any]] = []  # the judge table, empty until all calls are done
        self._failures = {f.failure_id: f for f in failures}
        self._judge, self._store, self._settings, self._file = judge, store, settings, file
        self._slots, self._calls = asyncio.Semaphore(settings.concurrency), Counter[str]()
        self._pace = Pace(settings.requests_per_minute, longest_wait_s)
        self._budget = JudgeBudget(settings, (call.usage for call in store.judge_calls()))

    async def ask(self, failure_id: str) -> Distillation:
        """The reply about one failure, stored before this returns. Raises as the judge does, or JudgeBudgetSpent."""
        judge = self._judge
        stored = self._store.stored_distillations([failure_id], judge.prompt_hash, judge.model)
        if stored:
            return stored[0]
        async with self._slots:
            await self._pace.wait()
            cuts = self._store.count_cut_replies(failure_id, judge.prompt_hash, judge.model)
            room = max(self._settings.max_tokens, min(self._settings.most_tokens, self._settings.max_tokens * 2**cuts))
            with self._budget.call(room) as settle:
                self._calls[failure_id] += 1
                try:
                    reply = await distill_one(self._failures[failure_id], judge, self._store.store_distillation, max_tokens=room)
                except JudgeRateLimited as limited:
                    self._pace.rest(limited.retry_after or 0.0)
                    raise
                settle(reply.usage)
                return reply

    async def ask_for_use(self, failure_id: str) -> Distillation:
        """As `ask`; raises JudgeReplyUnusable for a reply that is no answer."""
        reply = await self.ask(failure_id)
        if reply.state is not ReplyState.OK:
            raise JudgeReplyUnusable(f"{reply.state}: {reply.reason}")
        return reply

    def note(self, outcomes: Mapping[str, Mapping[str, Any] | ServiceError]) -> int:
        """Keep what came of each call as a row of the judge table; returns how many brought no usable reply.

        A call without a reply counts as one attempt at its failure, however often it was repeated just now; a call that the budget
        forbade is none.
        """
        for failure_id, outcome in outcomes.items():
            if isinstance(outcome, JudgeUnavailable | JudgeRejected):
                self._store.store_failed_call(failure_id, self._judge.prompt_hash, self._judge.model, str(outcome))
            row = {"status": str(outcome), "tokens": 0} if isinstance(outcome, ServiceError) else outcome
            self.rows.append({"failure": failure_id, "calls": self._calls[failure_id], **row})
        if self._file is not None:
            partial = self._file.with_suffix(".partial")
            partial.write_text(json.dumps(self.rows, ensure_ascii=False))
            os.replace(partial, self._file)
        return sum(isinstance(o, ServiceError) for o in outcomes.values())
