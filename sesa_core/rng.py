"""Named random streams: every draw in SESA comes from one of these, so that nothing depends on the order of events.

A stream is keyed by the run's seed and by what it is for, e.g. ``stream(seed, "targets", step)``.
Two streams with different keys are independent; the same key always gives the same draws, in any process.
"""

import hashlib

import numpy as np


def stream_seed(seed: int, *key: str | int) -> int:
    """A 64-bit seed for the stream named by `key`. Stable across processes and Python versions."""
    text = "\x1f".join([str(seed), *map(str, key)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def stream(seed: int, *key: str | int) -> np.random.Generator:
    """A counter-based (Philox) generator for the stream named by `key`."""
    return np.random.Generator(np.random.Philox(stream_seed(seed, *key)))
