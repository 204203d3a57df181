"""The queue of failures that wait for the judge: what is worth a call, and what leaves when the queue is full.

Pure functions. Invariant: the order depends on the failures alone, never on when they arrived; a failure that leaves is
returned to the caller, who records it. Edge case: equal priority is decided by age (the older is worth more), then by id.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sesa_core.config.models import QueueSettings
from sesa_core.types import Failure

CARDS_DID_NOT_HELP = 10.0  # cards were shown and the solver failed anyway: the bank lacks something
FAILED_REPEATEDLY = 5.0
LONG_EVIDENCE = 3.0
FRONTIER = 2.0  # at a pass rate of one half; below every other term, so that it only orders equals


@dataclass(frozen=True)
class PendingFailure:
    """A failure in the queue. `attempts` counts the judge calls about it that did not bring a usable reply."""

    failure: Failure
    attempts: int = 0


def evidence_words(failure: Failure) -> int:
    """Words of what the environment showed the failing rollout."""
    return sum(len(p.text.split()) for p in failure.evidence)


def priority(failure: Failure, settings: QueueSettings) -> float:
    """How much a judge's look at this failure is worth; higher is better."""
    worth = FRONTIER * 4 * failure.pass_rate * (1 - failure.pass_rate)
    worth += CARDS_DID_NOT_HELP if failure.shown_cards else 0.0
    worth += FAILED_REPEATEDLY if failure.failed_count > 1 else 0.0
    worth += LONG_EVIDENCE if evidence_words(failure) >= settings.long_evidence_words else 0.0
    return worth


def by_priority(pending: Iterable[PendingFailure], settings: QueueSettings) -> list[PendingFailure]:
    """Most informative first; ties by age, then by id."""
    return sorted(pending, key=lambda p: (-priority(p.failure, settings), p.failure.step, p.failure.failure_id))


def select(pending: Sequence[PendingFailure], settings: QueueSettings) -> list[PendingFailure]:
    """What to send to the judge now: nothing below `min_pending`, else the best `per_boundary`."""
    if len(pending) < settings.min_pending:
        return []
    return by_priority(pending, settings)[: settings.per_boundary]


def fit(pending: Sequence[PendingFailure], settings: QueueSettings) -> tuple[list[PendingFailure], list[PendingFailure]]:
    """(kept, dropped): at most `capacity` stay; the least informative leave."""
    ranked = by_priority(pending, settings)
    return ranked[: settings.capacity], ranked[settings.capacity :]
