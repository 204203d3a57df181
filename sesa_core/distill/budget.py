"""What judge calls may use in all: tokens, money, or both. A call that the budget does not cover is not made.

Invariant: no call starts unless what is used, what the calls in flight may still write and what this one may write stay within
the budget; only prompt tokens, which nobody knows beforehand, can exceed it. Edge case: a reply that nobody can read has been
paid for, and counts.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from sesa_core.config.models import JudgeSettings
from sesa_core.errors import JudgeBudgetSpent
from sesa_core.judge.base import Usage


class JudgeBudget:
    """The settings' budgets less what `used` says of earlier calls. For the calls of one event loop."""

    def __init__(self, settings: JudgeSettings, used: Iterable[Usage]) -> None:
        spent = list(used)
        self._settings = settings
        self._tokens = sum(u.prompt_tokens + u.completion_tokens for u in spent)
        self._cost = sum(u.cost for u in spent)
        self._reserved = 0  # reply tokens of calls in flight

    @contextmanager
    def call(self, max_tokens: int) -> Iterator[Callable[[Usage], None]]:
        """Around one call: yields what to tell its usage to. Raises JudgeBudgetSpent instead of letting it be made."""
        self._require(max_tokens)
        self._reserved += max_tokens
        try:
            yield self._settle
        finally:
            self._reserved -= max_tokens

    def _settle(self, usage: Usage) -> None:
        self._tokens += usage.prompt_tokens + usage.completion_tokens
        self._cost += usage.cost

    def _require(self, max_tokens: int) -> None:
        ahead, settings = self._reserved + max_tokens, self._settings
        if settings.token_budget is not None and self._tokens + ahead > settings.token_budget:
            raise _spent("token_budget", f"{settings.token_budget} tokens", f"{self._tokens} used")
        if settings.cost_budget is not None and self._cost + ahead * settings.price_completion / 1e6 > settings.cost_budget:
            raise _spent("cost_budget", f"{settings.cost_budget:g}", f"{self._cost:.4g} used")


def _spent(name: str, budget: str, used: str) -> JudgeBudgetSpent:
    return JudgeBudgetSpent(f"judge.{name} of {budget} leaves no room for another call ({used}); the failure waits for a larger one")
