"""Under which name Prefect keeps a task's result, so that the same work of the same run is not done twice."""

import hashlib


def cache_key(kind: str, *parts: str) -> str:
    """`kind` and a hash of what the work is about. Name the run by its identity: one that bears the name of a deleted run is another."""
    return f"{kind}-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()}"
