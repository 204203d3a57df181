"""Which pending failures go to the judge at this boundary.

What a failure is worth and the order belong to the queue (`bank/queue.py`), what a problem that failed again becomes to
`bank/failures.py`; this room only hands on the failures. Pure: the same queue gives the same selection in the same order,
whenever and in whatever order its failures arrived.
"""

from collections.abc import Iterable, Sequence

from sesa_core.bank import queue
from sesa_core.bank.failures import take_in
from sesa_core.bank.queue import PendingFailure
from sesa_core.bank.tables import PENDING, FailureRecord
from sesa_core.config.models import QueueSettings
from sesa_core.types import Failure


def select_failures(pending: Sequence[PendingFailure], settings: QueueSettings) -> list[Failure]:
    """At most `per_boundary` failures, most informative first; none while fewer than `min_pending` wait."""
    return [chosen.failure for chosen in queue.select(pending, settings)]


def waiting(known: Iterable[FailureRecord], fresh: Iterable[Failure]) -> list[PendingFailure]:
    """What waits for the judge once the next boundary has taken in `fresh`; `known` are the failures of earlier boundaries."""
    records = take_in({r.failure.failure_id: r for r in known}, fresh, boundary_id=0)  # which boundary it is shows in no PendingFailure
    return [PendingFailure(r.failure, r.attempts) for r in records.values() if r.state == PENDING]
