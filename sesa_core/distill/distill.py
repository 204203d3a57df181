"""From a failure to the judge's reply about it, stored the moment it arrives.

Owns no queue, no table and no batch: the judge and the place to put a reply are handed in, and who calls this for many failures
decides how many calls are in flight, which are repeated, and which are not needed since a usable reply is stored already.
Invariant: a reply is stored before `distill_one` returns it; nothing here consumes a failure. Edge case: a reply that holds no
card is stored too, for what it cost.
"""

from collections.abc import Callable

from sesa_core.judge.base import Distillation, Judge
from sesa_core.types import Failure

StoreReply = Callable[[Distillation], None]


async def distill_one(failure: Failure, judge: Judge, store_reply: StoreReply, max_tokens: int | None = None) -> Distillation:
    """The reply to one call about one failure.

    Raises JudgeUnavailable (JudgeRateLimited) or JudgeRejected; then nothing was stored and the failure is as it was.
    """
    reply = await judge.distill(failure, max_tokens)
    store_reply(reply)
    return reply
