"""Calls to a judge, some at a time, until it leaves too many in a row without an answer.

One `Patience` serves one batch: a judge that hangs must not hold up a step for as many time-outs as there are questions. Edge
case: calls in flight when it is lost are waited for, and an answer among them restores it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from sesa_core.errors import JudgeRateLimited, JudgeRejected, JudgeResting, ServiceError

Reply = TypeVar("Reply")


class Patience:
    """To be made and used inside one event loop."""

    def __init__(self, concurrency: int, give_up_after: int) -> None:
        self.give_up_after = give_up_after
        self._slots, self._unanswered = asyncio.Semaphore(concurrency), 0

    async def ask(self, call: Callable[[], Awaitable[Reply]]) -> Reply:
        """What `call` brings; it is not repeated. Raises its ServiceError, or JudgeResting where nothing was called any more."""
        async with self._slots:
            if self._unanswered >= self.give_up_after:
                raise JudgeResting(f"not asked: the judge left {self._unanswered} calls in a row without an answer")
            try:
                reply = await call()
            except ServiceError as failure:
                said_something = isinstance(failure, JudgeRateLimited | JudgeRejected)
                self._unanswered = 0 if said_something else self._unanswered + 1
                raise
            self._unanswered = 0
            return reply
