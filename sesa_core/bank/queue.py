"""The queue of failures that wait for the judge: what is worth a call, and what leaves when the queue is full.

Pure functions. Invariant: the order depends on the failures alone, never on when they arrived; a failure that leaves is
returned to the caller, who records it. Edge case: equal priority is decided by age (the older is worth more), then by id.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sesa_core.config.models import QueueSettings
from sesa_core.text.normalize import tokens
from sesa_core.types import Failure

CARDS_DID_NOT_HELP = 10.0  # cards were shown and the solver failed anyway: the bank lacks something
FAILED_REPEATEDLY = 5.0
LONG_EVIDENCE = 3.0


@dataclass(frozen=True)
class PendingFailure:
    """A failure in the queue. `attempts` counts the judge calls about it that did not bring a usable reply."""

    failure: Failure
    attempts: int = 0


def evidence_words(failure: Failure) -> int:
    """Words of what the environment showed the failing rollout."""
    return sum(len(p.text.split()) for p in failure.evidence)


def priority(failure: Failure, settings: QueueSettings) -> float:
    """How much a judge's look at this failure is worth; higher is better.

    A problem that no rollout solved has no variance and therefore teaches the policy nothing: only a card can help there.
    """
    worth = settings.frontier_bonus * 4 * failure.pass_rate * (1 - failure.pass_rate)
    worth += settings.unsolved_bonus if failure.pass_rate == 0 else 0.0
    worth += CARDS_DID_NOT_HELP if failure.shown_cards else 0.0
    worth += FAILED_REPEATEDLY if failure.failed_count > 1 else 0.0
    worth += LONG_EVIDENCE if evidence_words(failure) >= settings.long_evidence_words else 0.0
    return worth


def by_priority(pending: Iterable[PendingFailure], settings: QueueSettings) -> list[PendingFailure]:
    """Most informative first; ties by age, then by id."""
    return sorted(pending, key=lambda p: (-priority(p.failure, settings), p.failure.step, p.failure.failure_id))


def select(pending: Sequence[PendingFailure], settings: QueueSettings) -> list[PendingFailure]:
    """What to send to the judge now: nothing below `min_pending`, else `per_boundary` failures, the best first.

    A failure that resembles one already chosen loses up to `repeat_penalty`, so that one pass asks for different lessons.
    """
    if len(pending) < settings.min_pending:
        return []
    ranked = by_priority(pending, settings)
    if not settings.repeat_penalty:
        return ranked[: settings.per_boundary]
    words = recurring_words([p.failure.question for p in ranked])
    worth = [priority(p.failure, settings) for p in ranked]
    nearest = [0.0] * len(ranked)
    chosen: list[int] = []
    while len(chosen) < min(settings.per_boundary, len(ranked)):
        left = (i for i in range(len(ranked)) if i not in chosen)
        best = max(left, key=lambda i: (worth[i] - settings.repeat_penalty * nearest[i], -i))
        chosen.append(best)
        nearest = [max(n, resemblance(words[i], words[best])) for i, n in enumerate(nearest)]
    return [ranked[i] for i in chosen]


def recurring_words(questions: Sequence[str]) -> list[dict[str, float]]:
    """Per question its words that some other question also has, each weighted by rarity, log(N / questions that have it).

    Names mostly occur once and drop out; words that all questions share weigh nothing.
    """
    split = [set(tokens(q)) for q in questions]
    counts = Counter(word for words in split for word in words)
    return [{w: math.log(len(split) / counts[w]) for w in words if counts[w] > 1} for words in split]


def resemblance(left: dict[str, float], right: dict[str, float]) -> float:
    """Weighted Jaccard similarity of two bags of `recurring_words`, in [0, 1]."""
    everything = sum((left | right).values())
    return sum(weight for word, weight in left.items() if word in right) / everything if everything else 0.0


def fit(pending: Sequence[PendingFailure], settings: QueueSettings) -> tuple[list[PendingFailure], list[PendingFailure]]:
    """(kept, dropped): at most `capacity` stay; the least informative leave."""
    ranked = by_priority(pending, settings)
    return ranked[: settings.capacity], ranked[settings.capacity :]
