"""How fast a judge is called: so many calls in any minute, and none while it has asked for rest.

Owns no call; who wants to make one waits here first. Invariant: the order of waiting is the order of going on. Edge case: a
judge that asks for an hour is not waited for longer than `longest_wait_s`.
"""

import asyncio
import time
from collections import deque

WINDOW_S = 60.0


class Pace:
    """For the calls of one event loop. `per_minute` None: no limit but what the judge asks for."""

    def __init__(self, per_minute: int | None, longest_wait_s: float, window_s: float = WINDOW_S) -> None:
        self._per_window, self._longest_wait_s, self._window_s = per_minute, longest_wait_s, window_s
        self._started: deque[float] = deque(maxlen=per_minute)
        self._not_before = 0.0  # on the monotonic clock
        self._turn = asyncio.Lock()

    def rest(self, seconds: float) -> None:
        """Nobody goes on for so long."""
        self._not_before = max(self._not_before, time.monotonic() + min(seconds, self._longest_wait_s))

    async def wait(self) -> None:
        """Returns when a call may be made, and counts it."""
        async with self._turn:
            while (seconds := self._free_at() - time.monotonic()) > 0:
                await asyncio.sleep(seconds)
            self._started.append(time.monotonic())

    def _free_at(self) -> float:
        full = self._per_window is not None and len(self._started) == self._per_window
        return max(self._not_before, self._started[0] + self._window_s if full else 0.0)
