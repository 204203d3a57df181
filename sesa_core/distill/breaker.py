"""When a judge is taken for down: after so many calls in a row without an answer nobody calls it, but for one try now and then.

Owns no call. Invariant: an answer, whatever it says, lets everybody call again. Edge case: calls that were in flight when the
judge was given up still count, whichever way they end.
"""

import time

from sesa_core.errors import JudgeResting


class Breaker:
    """For the calls of one event loop. One call is let through every `probe_after_s` seconds while the judge is given up."""

    def __init__(self, give_up_after: int, probe_after_s: float) -> None:
        self._give_up_after, self._probe_after_s = give_up_after, probe_after_s
        self._silent = 0
        self._next_try = 0.0  # on the monotonic clock

    def require(self) -> None:
        """Raises JudgeResting instead of letting a call be made."""
        if self._silent < self._give_up_after:
            return
        now = time.monotonic()
        if now < self._next_try:
            raise JudgeResting(f"not called: the judge left {self._silent} calls in a row without an answer")
        self._next_try = now + self._probe_after_s

    def answered(self) -> None:
        self._silent = 0

    def silent(self) -> None:
        """A call ended without an answer."""
        self._silent += 1
        if self._silent == self._give_up_after:
            self._next_try = time.monotonic() + self._probe_after_s
