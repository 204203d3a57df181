"""What becomes of every failure at a boundary: taken in, consumed, tried again, dropped or dead.

Pure. Invariant: a problem is one failure, consumed by a usable reply about it and by nothing else, and only once; whatever
leaves the queue keeps its row with the reason. Edge cases: a usable reply about a dropped or dead failure was paid for and
still consumes it; a problem that fails again while it waits, or after it was dropped, waits with its newest evidence.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from sesa_core.bank.queue import PendingFailure, fit
from sesa_core.bank.tables import CONSUMED, DEAD, DROPPED, PENDING, FailureRecord
from sesa_core.config.models import QueueSettings
from sesa_core.judge.base import Distillation, ReplyState
from sesa_core.types import Failure


@dataclass(frozen=True)
class Settlement:
    """`changed` are the rows to write, by id; `replies` the usable ones, one a failure, in the order of failure ids."""

    changed: Mapping[str, FailureRecord]
    replies: tuple[Distillation, ...]
    counts: Mapping[str, int]


def in_order(replies: Iterable[Distillation]) -> list[Distillation]:
    """By failure, prompt and model: never by arrival."""
    return sorted(replies, key=lambda r: (r.failure_id, r.prompt_hash, r.model, str(r.state), r.reply))


def settle(
    known: Mapping[str, FailureRecord],
    fresh: Sequence[Failure],
    replies: Sequence[Distillation],
    failed_attempts: Mapping[str, int],
    settings: QueueSettings,
    boundary_id: int,
) -> Settlement:
    """`known` must hold every pending failure and every known one that `fresh` or `replies` mention.

    `failed_attempts` gives a failure's unsuccessful calls in all; a failure that it does not name has those of its row, and one
    more if `replies` holds an unusable one about it.
    """
    records = take_in(known, fresh, boundary_id)
    taken_in = len(records) - len(known)
    used = _consume(records, replies, boundary_id)
    _count_attempts(records, replies, failed_attempts, settings)
    pending = [PendingFailure(r.failure, r.attempts) for r in records.values() if r.state == PENDING]
    for leaving in fit(pending, settings)[1]:
        key = leaving.failure.failure_id
        records[key] = replace(records[key], state=DROPPED, reason=f"queue full at boundary {boundary_id}")
    changed = {k: r for k, r in sorted(records.items()) if known.get(k) != r}
    counts = {"new": taken_in, "replies_not_used": sum(r.state is ReplyState.OK for r in replies) - len(used)}
    counts |= {state: sum(r.state == state for r in changed.values()) for state in (CONSUMED, DROPPED, DEAD)}
    counts[PENDING] = sum(r.state == PENDING for r in records.values())
    return Settlement(changed, tuple(used), counts)


def take_in(known: Mapping[str, FailureRecord], fresh: Iterable[Failure], boundary_id: int) -> dict[str, FailureRecord]:
    """`known` with what failed since: a new problem waits, one that waits or was dropped takes the newest step's evidence and
    has failed more often. A step that is known already changes nothing, nor does what was consumed or is dead.
    """
    records = dict(known)
    for failure in sorted(fresh, key=lambda f: (f.failure_id, f.step)):
        record = records.get(failure.failure_id)
        if record is None:
            records[failure.failure_id] = FailureRecord(failure, boundary_id)
        elif record.state in (PENDING, DROPPED) and failure.step > record.failure.step:
            again = replace(failure, failed_count=record.failure.failed_count + failure.failed_count)
            reason = record.reason if record.state == PENDING else ""
            records[failure.failure_id] = replace(record, failure=again, state=PENDING, reason=reason)
    return records


def _consume(records: dict[str, FailureRecord], replies: Sequence[Distillation], boundary_id: int) -> list[Distillation]:
    used = []
    for reply in in_order(replies):
        record = records.get(reply.failure_id)
        if reply.state is ReplyState.OK and record is not None and record.state != CONSUMED:
            records[reply.failure_id] = replace(record, state=CONSUMED, reason="", consumed_boundary=boundary_id)
            used.append(reply)
    return used


def _count_attempts(
    records: dict[str, FailureRecord], replies: Sequence[Distillation], failed_attempts: Mapping[str, int], settings: QueueSettings
) -> None:
    unusable = {r.failure_id: f"{r.state}: {r.reason}".rstrip(": ") for r in in_order(replies) if r.state is not ReplyState.OK}
    for key in sorted({*unusable, *failed_attempts} & set(records)):
        record = records[key]
        if record.state != PENDING:
            continue
        attempts = max(record.attempts, failed_attempts.get(key, record.attempts + (key in unusable)))
        dead = attempts >= settings.max_attempts
        reason = unusable.get(key, record.reason)
        records[key] = replace(record, attempts=attempts, reason=reason, state=DEAD if dead else PENDING)
