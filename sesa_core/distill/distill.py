"""From failures to judge replies: each reply is stored the moment it arrives, and a stored one is never paid for again.

Owns no queue and no table: the judge, the stored replies and the place to put new ones are handed in. Invariant: a failure
whose call brought no reply is reported as an `Outage` and is otherwise untouched; nothing here consumes a failure. Results
are in the order of failure ids, never of arrival. Edge case: if storing fails, the error is raised at once and the calls
still in flight are cancelled, since their replies could not be kept either.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sesa_core.errors import JudgeRateLimited, JudgeRejected, JudgeUnavailable
from sesa_core.judge.base import Distillation, Judge, ReplyState
from sesa_core.types import Failure

StoreReply = Callable[[Distillation], None]


@dataclass(frozen=True)
class Outage:
    """A call that brought no reply. `permanent`: repeating it as it is changes nothing. `retry_after` is in seconds."""

    failure_id: str
    reason: str
    permanent: bool
    retry_after: float | None = None


@dataclass(frozen=True)
class DistillResult:
    """What came of one batch. `calls` counts requests that were made, `reused` replies that were stored before."""

    replies: tuple[Distillation, ...]
    outages: tuple[Outage, ...]
    calls: int
    reused: int

    @property
    def usable(self) -> tuple[Distillation, ...]:
        """Replies that carry a card draft."""
        return tuple(r for r in self.replies if r.state is ReplyState.OK)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Ids of the failures that stay pending with one more attempt counted, in order."""
        unusable = [r.failure_id for r in self.replies if r.state is not ReplyState.OK]
        return tuple(sorted([*unusable, *(o.failure_id for o in self.outages)]))


def paid_already(stored: Distillation | None, judge: Judge) -> bool:
    """Whether a stored reply stands for a new call: a usable one, from this model and this prompt."""
    return stored is not None and stored.state is ReplyState.OK and (stored.prompt_hash, stored.model) == (judge.prompt_hash, judge.model)


async def distill_one(failure: Failure, judge: Judge, store_reply: StoreReply, stored: Distillation | None = None) -> Distillation:
    """The reply about one failure: the stored one if it stands, else a call whose reply is stored before this returns.

    Raises JudgeUnavailable (JudgeRateLimited) or JudgeRejected; then nothing was stored and the failure is as it was.
    """
    if stored is not None and paid_already(stored, judge):
        return stored
    reply = await judge.distill(failure)
    store_reply(reply)
    return reply


async def distill_failures(
    failures: Sequence[Failure],
    judge: Judge,
    store_reply: StoreReply,
    concurrency: int = 8,
    stored: Mapping[str, Distillation] | None = None,
) -> DistillResult:
    """Ask the judge about each failure, at most `concurrency` calls in flight. `stored` maps failure ids to stored replies.

    A judge that is down or refuses is part of the result. What `store_reply` raises is raised.
    """
    known = {f.failure_id: r for f in failures if (r := (stored or {}).get(f.failure_id)) is not None and paid_already(r, judge)}
    slots = asyncio.Semaphore(concurrency)

    async def ask(failure: Failure) -> Distillation | Outage:
        async with slots:
            try:
                return await distill_one(failure, judge, store_reply)
            except (JudgeUnavailable, JudgeRejected) as error:
                wait = error.retry_after if isinstance(error, JudgeRateLimited) else None
                return Outage(failure.failure_id, str(error), isinstance(error, JudgeRejected), wait)

    asked = {f.failure_id: f for f in failures if f.failure_id not in known}
    calls = [asyncio.create_task(ask(f)) for f in asked.values()]
    try:
        outcomes = await asyncio.gather(*calls)
    finally:
        for call in calls:
            call.cancel()
    replies = [*known.values(), *(o for o in outcomes if isinstance(o, Distillation))]
    outages = [o for o in outcomes if isinstance(o, Outage)]
    return DistillResult(
        replies=tuple(sorted(replies, key=lambda r: r.failure_id)),
        outages=tuple(sorted(outages, key=lambda o: o.failure_id)),
        calls=len(calls),
        reused=len(known),
    )
