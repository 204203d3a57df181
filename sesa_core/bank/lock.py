"""The file lock of a bank in a directory: one writer at a time, and a second one is told who writes.

Invariant: the lock is the operating system's, so a killed holder's lock is free at once. Edge case: the note beside the lock
says who holds it; a holder that has not written its note yet is "another process".
"""

import json
from pathlib import Path

from filelock import FileLock, Timeout

from sesa_core.errors import BankBusy


class WriterLock:
    """Held from its making until `release`. Raises BankBusy if another process holds it."""

    def __init__(self, folder: Path, owner: str, run: str) -> None:
        self._lock = FileLock(folder / "writer.lock", thread_local=False)
        self._note = folder / "writer.json"
        try:
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise BankBusy(f"the bank in {folder} is being written by {self._holder()}; wait for it to end, or read only") from error
        self._note.write_text(json.dumps({"owner": owner, "run": run}), encoding="utf-8")

    def _holder(self) -> str:
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return "another process"
        return f"{note['owner']}" + (f" (run {note['run']})" if note["run"] else "")

    def release(self) -> None:
        self._lock.release()
