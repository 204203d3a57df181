"""The bank's LanceDB tables: opening, fencing, and reading any committed boundary.

Owns the connection. Invariant: what a reader sees is pinned by a row of `boundaries`, never a table's newest version; one
writer at a time holds the file lock, and the key of `boundaries` fences writers that share no file system. Edge case: a bank
that was created but has no boundary yet reads as empty.
"""

import hashlib
import json
import os
import re
import socket
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import lancedb
import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout

from sesa_core.bank.queue import PendingFailure
from sesa_core.bank.replies import Replies, quoted
from sesa_core.bank.state import BankState
from sesa_core.bank.tables import KEYS, PENDING, PINNED, BoundaryRow, FailureRecord, Tombstone, schemas
from sesa_core.cards.schema import SCHEMA_VERSION, SkillCard, card_from_row
from sesa_core.embed.base import Embedder
from sesa_core.errors import BankBusy, BankError, BankIncompatible, ConfigError, MissingRun
from sesa_core.judge.base import Distillation

At = int | str | None
_LANCE_ERRORS = (OSError, RuntimeError, ValueError)
_SQL_LIST = 2000  # ids in one filter


def run_slug(run: str) -> str:
    """A run's name as it stands in tags."""
    return re.sub(r"[^a-z0-9-]+", "-", run.lower()).strip("-") or "run"


class WriterLock:
    """The file lock of a bank in a directory; it says who holds it. A killed holder's lock is free at once."""

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
        except (OSError, ValueError):  # the holder has not written its note yet
            return "another process"
        return f"{note['owner']} (run {note['run']})"

    def release(self) -> None:
        self._lock.release()


class BankStore:
    """One bank. Open with `BankStore.open`, close it or use it as a context manager."""

    def __init__(self, uri: str, db: Any, *, embedder: Embedder, run: str, owner: str, lock: WriterLock | None, write: bool) -> None:
        self.uri, self.embedder, self.run, self.owner, self.write = uri, embedder, run, owner, write
        self._db, self._lock = db, lock
        self._replies: Replies | None = None

    @classmethod
    def open(cls, uri: str | Path, *, embedder: Embedder, run: str, owner: str | None = None, write: bool = True) -> "BankStore":
        """Open a bank (a directory, or an object-store URI), creating its tables if `write`.

        Raises BankBusy if another process writes it, BankIncompatible for another embedder or a newer schema, MissingRun if
        there is nothing to read.
        """
        uri, owner = str(uri), owner or f"process {os.getpid()} on {socket.gethostname()}"
        local = None if "://" in uri else Path(uri).absolute()
        if local is not None and write:
            local.mkdir(parents=True, exist_ok=True)
        if local is not None and not local.is_dir():
            raise MissingRun(f"there is no bank in {uri}")
        with ExitStack() as undo:
            lock = WriterLock(local, owner, run) if write and local is not None else None
            if lock is not None:
                undo.callback(lock.release)
            db = lancedb.connect(str(local or uri), read_consistency_interval=timedelta(0))
            store = cls(uri, db, embedder=embedder, run=run, owner=owner, lock=lock, write=write)
            store._prepare()
            undo.pop_all()
        return store

    def _prepare(self) -> None:
        present = set(self._db.list_tables().tables)
        missing = [name for name in KEYS if name not in present]
        if missing and not self.write:
            raise MissingRun(f"the bank in {self.uri} is not complete (no table {missing[0]}); a run creates it")
        for name, schema in schemas(self.embedder.dimension).items():
            if name in missing:
                self._db.create_table(name, schema=schema)
        last = self.last_boundary()
        if last is not None:
            self._check_compatible(last)
        self._replies = Replies(self.table("distillations"))

    def _check_compatible(self, last: BoundaryRow) -> None:
        if last.schema_version > SCHEMA_VERSION:
            raise BankIncompatible(f"the bank in {self.uri} has schema {last.schema_version}, this SESA knows {SCHEMA_VERSION}")
        if (last.embedder, last.dimension) != (self.embedder.name, self.embedder.dimension):
            raise BankIncompatible(
                f"the bank in {self.uri} was written with embedder {last.embedder} ({last.dimension} dimensions), "
                f"not {self.embedder.name} ({self.embedder.dimension})"
            )

    def close(self) -> None:
        """Let the next writer in."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # -- boundaries

    def table(self, name: str) -> Any:
        """A table at its newest version. Only the boundary protocol writes through it."""
        try:
            return self._db.open_table(name)
        except _LANCE_ERRORS as error:
            raise BankError(f"{self.uri}: table {name} cannot be opened ({str(error).splitlines()[0]})") from error

    def boundaries(self) -> list[BoundaryRow]:
        """All committed boundaries, oldest first."""
        return [BoundaryRow.of(row) for row in self.table("boundaries").to_arrow().sort_by("boundary_id").to_pylist()]

    def last_boundary(self) -> BoundaryRow | None:
        """The newest committed boundary: the truth about where the run stands."""
        table = self.table("boundaries")
        count = table.count_rows()
        if count == 0:
            return None
        rows = table.search().where(f"boundary_id >= {count - 1}").to_list()
        return BoundaryRow.of(max(rows, key=lambda r: r["boundary_id"]))

    def boundary(self, at: At = None) -> BoundaryRow | None:
        """The boundary that `at` names: an id, a tag, or None for the newest. Raises ConfigError for an unknown one."""
        if at is None:
            return self.last_boundary()
        rows = self.boundaries()
        found = next((r for r in rows if at in (r.boundary_id, r.tag, str(r.boundary_id))), None)
        if found is None:
            allowed = f"boundaries are 0 to {rows[-1].boundary_id}, tags {rows[0].tag} to {rows[-1].tag}" if rows else "there are none yet"
            raise ConfigError("at", at, allowed)
        return found

    def tag(self, boundary_id: int) -> str:
        """The tag of a boundary of this run."""
        return f"{run_slug(self.run)}.b-{boundary_id:05d}"

    # -- reading what a boundary pins

    def pinned(self, name: str, at: At = None) -> pa.Table:
        """A pinned table as the boundary `at` holds it, sorted by its key."""
        row = self.boundary(at)
        if row is None:
            return schemas(self.embedder.dimension)[name].empty_table()
        table = self.table(name)
        try:
            table.checkout(row.versions[name])
            return table.to_arrow().sort_by(KEYS[name])
        except _LANCE_ERRORS as error:
            raise BankError(f"{self.uri}: table {name} of {row.tag} cannot be read ({str(error).splitlines()[0]})") from error

    def _matching(self, name: str, column: str, ids: Iterable[str]) -> list[dict[str, Any]]:
        """Rows of a pinned table whose `column` is one of `ids`."""
        row, wanted = self.last_boundary(), sorted(set(ids))
        if row is None or not wanted:
            return []
        table = self.table(name)
        table.checkout(row.versions[name])
        chunks = (wanted[i : i + _SQL_LIST] for i in range(0, len(wanted), _SQL_LIST))
        return [r for chunk in chunks for r in table.search().where(f"{column} IN {quoted(chunk)}").to_list()]

    def read_cards(self, at: At = None, *, vectors: bool = False) -> list[SkillCard]:
        """The cards of a boundary by id, whatever their state; their own `vector` stays empty unless asked for."""
        return list(self.cards_and_vectors(at, fill=vectors)[0])

    def cards_and_vectors(self, at: At = None, *, fill: bool = False) -> tuple[tuple[SkillCard, ...], np.ndarray]:
        """(cards by id, their vectors (N, D) float32)."""
        rows = self.pinned("cards", at)
        bare = rows if fill else rows.drop_columns(["vector"])
        try:
            return tuple(card_from_row(row) for row in bare.to_pylist()), self._matrix(rows)
        except ValueError as error:  # pydantic's ValidationError is one
            raise BankError(f"{self.uri}: table cards holds a damaged card ({error})") from error

    def read_tombstones(self, at: At = None) -> list[Tombstone]:
        """All tombstones of a boundary, lifted ones included, by id."""
        return [Tombstone.of(row) for row in self.pinned("tombstones", at).drop_columns(["vector"]).to_pylist()]

    def read_events(self, at: At = None) -> list[dict[str, Any]]:
        """The ledger of a boundary: everything that happened to its cards, by event id."""
        return [row | {"payload": json.loads(row["payload"])} for row in self.pinned("events", at).to_pylist()]

    def read_failures(self, at: At = None) -> list[FailureRecord]:
        """Every failure of a boundary with where it stands, by id."""
        return [FailureRecord.of(row) for row in self.pinned("failures", at).to_pylist()]

    def pending_failures(self, at: At = None) -> list[PendingFailure]:
        """The failures that wait for the judge, by id, with their attempts as of that boundary."""
        rows = self.pinned("failures", at)
        records = (FailureRecord.of(row) for row in rows.to_pylist() if row["state"] == PENDING)
        return [PendingFailure(r.failure, r.attempts) for r in records]

    def _matrix(self, rows: pa.Table) -> np.ndarray:
        column = rows["vector"].combine_chunks()
        flat = column.flatten() if len(rows) else pa.array([], pa.float32())
        return flat.to_numpy(zero_copy_only=False).reshape(len(rows), self.embedder.dimension).astype(np.float32)

    def read_state(self, *, failure_ids: Collection[str] = (), use_keys: Collection[str] = ()) -> BankState:
        """What the plan of the next boundary needs: `failure_ids` and `use_keys` are those that its commit mentions."""
        cards, vectors = self.cards_and_vectors()
        buried = self.pinned("tombstones")
        records = [FailureRecord.of(r) for r in self._matching("failures", "state", [PENDING])]
        records += [FailureRecord.of(r) for r in self._matching("failures", "failure_id", failure_ids)]
        return BankState(
            last=self.last_boundary(),
            run=self.run,
            cards=cards,
            vectors=vectors,
            tombstones=tuple(Tombstone.of(row) for row in buried.drop_columns(["vector"]).to_pylist()),
            tombstone_vectors=self._matrix(buried),
            failures={r.failure.failure_id: r for r in records},
            known_uses=frozenset(r["event_id"] for r in self._matching("events", "event_id", use_keys)),
        )

    def content_hash(self, at: At = None) -> str:
        """Of everything that a boundary pins: equal banks have equal hashes, however they came about."""
        digest = hashlib.sha256()
        for name in PINNED:
            rows = self.pinned(name, at)
            digest.update(json.dumps([name, rows.to_pylist()], sort_keys=True, ensure_ascii=False).encode())
        return digest.hexdigest()

    # -- judge replies: never pinned, never rolled back

    def _next_boundary(self, boundary: int | None) -> int:
        if boundary is not None:
            return boundary
        last = self.last_boundary()
        return last.boundary_id + 1 if last is not None else 0

    def store_distillation(self, distillation: Distillation, boundary: int | None = None) -> None:
        """Keep a judge reply at once; `boundary` is the one it was asked for (default: the next). Any thread may call this."""
        self._replies.add(distillation, self._next_boundary(boundary))

    def store_failed_call(self, failure_id: str, prompt_hash: str, model: str, reason: str, boundary: int | None = None) -> None:
        """Record a judge call that brought no reply: it counts as an attempt."""
        self._replies.add_failed_call(failure_id, prompt_hash, model, reason, self._next_boundary(boundary))

    def stored_distillations(self, failure_ids: Sequence[str], prompt_hash: str, model: str) -> list[Distillation]:
        """The usable replies that are already paid for, in the order of failure ids."""
        return self._replies.usable(failure_ids, prompt_hash, model)

    def count_attempts(self, failure_ids: Sequence[str]) -> dict[str, int]:
        """Unsuccessful judge calls about each failure, as they happened (rolled back by nothing)."""
        return self._replies.attempts(failure_ids)
