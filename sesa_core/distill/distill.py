"""From a failure to the judge's reply about it: stored the moment it arrives, and a stored one is never paid for again.

Owns no queue, no table and no batch: the judge, the stored reply and the place to put a new one are handed in, and who calls
this for many failures decides how many calls are in flight and which are repeated. Invariant: a reply is stored before
`distill_one` returns it; nothing here consumes a failure. Edge case: a reply that holds no card is stored too, for what it
cost, but does not stand for a call: the next one asks the judge again.
"""

from collections.abc import Callable

from sesa_core.judge.base import Distillation, Judge, ReplyState
from sesa_core.types import Failure

StoreReply = Callable[[Distillation], None]


def paid_already(stored: Distillation | None, judge: Judge) -> bool:
    """Whether a stored reply stands for a new call: a usable one, from this model and this prompt."""
    return stored is not None and stored.state is ReplyState.OK and (stored.prompt_hash, stored.model) == (judge.prompt_hash, judge.model)


async def distill_one(
    failure: Failure, judge: Judge, store_reply: StoreReply, stored: Distillation | None = None, max_tokens: int | None = None
) -> Distillation:
    """The reply about one failure: the stored one if it stands, else a call whose reply is stored before this returns.

    Raises JudgeUnavailable (JudgeRateLimited) or JudgeRejected; then nothing was stored and the failure is as it was.
    """
    if stored is not None and paid_already(stored, judge):
        return stored
    reply = await judge.distill(failure, max_tokens)
    store_reply(reply)
    return reply
