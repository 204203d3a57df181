"""Which pending failures go to the judge at this boundary.

What a failure is worth and the order belong to the queue (`bank/queue.py`); this room only hands on the failures. Pure:
the same queue gives the same selection in the same order, whenever and in whatever order its failures arrived.
"""

from collections.abc import Sequence

from sesa_core.bank import queue
from sesa_core.bank.queue import PendingFailure
from sesa_core.config.models import QueueSettings
from sesa_core.types import Failure


def select_failures(pending: Sequence[PendingFailure], settings: QueueSettings) -> list[Failure]:
    """At most `per_boundary` failures, most informative first; none while fewer than `min_pending` wait."""
    return [chosen.failure for chosen in queue.select(pending, settings)]
