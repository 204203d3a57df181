"""The bank's LanceDB tables: opening, fencing, and reading any committed boundary.

Owns the connection. Invariant: what a reader sees is pinned by a row of `boundaries`, never a table's newest version; one
writer at a time holds the file lock, and the key of `boundaries` fences writers that share no file system. Edge case: a bank
that was created but has no boundary yet reads as empty; one of an older schema reads as if it were of today's.
"""

import hashlib
import json
import os
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import lancedb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sesa_core.bank.holding import Holding
from sesa_core.bank.lock import WriterLock
from sesa_core.bank.migrations import check_version, migrated
from sesa_core.bank.places import At, boundary_tag, find_boundary, run_slug
from sesa_core.bank.queue import PendingFailure
from sesa_core.bank.replies import Replies, Spent, StoredReply, quoted
from sesa_core.bank.state import BankState
from sesa_core.bank.tables import KEYS, PENDING, PINNED, BoundaryRow, FailureRecord, Tombstone, schemas
from sesa_core.bank.tags import Tags
from sesa_core.cards.schema import SkillCard
from sesa_core.embed.base import Embedder
from sesa_core.errors import BankDamaged, BankError, BankIncompatible, MissingRun
from sesa_core.judge.base import Distillation

__all__ = ["At", "BankStore", "LANCE_ERRORS", "run_slug"]

LANCE_ERRORS = (OSError, RuntimeError, ValueError)
_SQL_LIST = 2000  # ids in one filter
_OPTIONAL = frozenset({"tags"})  # tables that a bank may lack and still be read


def first_line(error: BaseException) -> str:
    """What a library's error says, without its backtrace."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _local_folder(uri: str) -> Path | None:
    """The directory of a bank, None for an object store."""
    path = uri.removeprefix("file://")
    return None if "://" in path else Path(path).absolute()


@contextmanager
def _reached(uri: str) -> Iterator[None]:
    """Raises BankError for a place that does not answer."""
    try:
        yield
    except LANCE_ERRORS as error:
        raise BankError(f"the bank in {uri} cannot be reached ({first_line(error)[:300]})") from error


def _connect(uri: str, local: Path | None, storage_options: Mapping[str, str] | None) -> Any:
    options = dict(storage_options or {})
    with _reached(uri):
        return lancedb.connect(str(local or uri), read_consistency_interval=timedelta(0), storage_options=options)


class BankStore:
    """One bank. Open with `BankStore.open`, close it or use it as a context manager."""

    def __init__(self, uri: str, db: Any, *, embedder: Embedder, run: str, owner: str, lock: WriterLock | None, write: bool) -> None:
        self.uri, self.embedder, self.run, self.owner, self.write = uri, embedder, run, owner, write
        self._db, self._lock = db, lock
        self._unreadable = BankDamaged if _local_folder(uri) is not None else BankError  # an object store may be down for a while
        self._replies: Replies | None = None
        self._at_hand: tuple[int, Holding] | None = None  # the newest cards that this process wrote, and their table's version
        self.tags = Tags(None)
        self.standing: dict[str, int] | None = None  # where `recover` left every pinned table: the next write stands on it

    @classmethod
    def open(
        cls,
        uri: str | Path,
        *,
        embedder: Embedder,
        run: str = "",
        owner: str | None = None,
        write: bool = True,
        storage_options: Mapping[str, str] | None = None,
    ) -> "BankStore":
        """Open a bank (a directory, or an object-store URI), creating its tables if `write`.

        Without `run` the bank's last boundary says whose it is. `storage_options` are an object store's (endpoint, keys); what
        they leave open is taken from the usual environment variables by the storage library itself. Raises BankBusy if another
        process writes it, BankIncompatible for another embedder or a schema that cannot be read, MissingRun if there is
        nothing to read, BankError if the place cannot be reached.
        """
        uri, owner = str(uri), owner or f"process {os.getpid()} on {socket.gethostname()}"
        local = _local_folder(uri)
        if local is not None and write:
            local.mkdir(parents=True, exist_ok=True)
        if local is not None and not local.is_dir():
            raise MissingRun(f"there is no bank in {uri}")
        with ExitStack() as undo:
            lock = WriterLock(local, owner, run) if write and local is not None else None
            if lock is not None:
                undo.callback(lock.release)
            db = _connect(uri, local, storage_options)
            store = cls(uri, db, embedder=embedder, run=run, owner=owner, lock=lock, write=write)
            store._prepare()
            undo.pop_all()
        return store

    def _prepare(self) -> None:
        with _reached(self.uri):
            present = set(self._db.list_tables().tables)
        missing = [name for name in KEYS if name not in present]
        needed = [name for name in missing if name not in _OPTIONAL]
        if needed and not self.write:
            raise MissingRun(f"the bank in {self.uri} is not complete (no table {needed[0]}); a run creates it")
        if self.write:
            for name, schema in schemas(self.embedder.dimension).items():
                if name in missing:
                    self._db.create_table(name, schema=schema, exist_ok=True)
        last = self.last_boundary()
        if last is not None:
            self._check_compatible(last)
        self.run = self.run or (last.run if last is not None else "bank")
        self._replies = Replies(self.table("distillations"))
        self.tags = Tags(self.table("tags") if self.write or "tags" not in missing else None)

    def _check_compatible(self, last: BoundaryRow) -> None:
        check_version(f"the bank in {self.uri}", last.schema_version)
        if (last.embedder, last.dimension) != (self.embedder.name, self.embedder.dimension):
            raise BankIncompatible(
                f"the bank in {self.uri} was written with embedder {last.embedder} ({last.dimension} dimensions), "
                f"not {self.embedder.name} ({self.embedder.dimension})"
            )

    @property
    def fenced_by_lock(self) -> bool:
        """Whether a file lock keeps every other writer out, not only the key of `boundaries`."""
        return self._lock is not None

    def close(self) -> None:
        """Let the next writer in."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # -- boundaries

    @contextmanager
    def _sound(self, name: str, what: str) -> Iterator[None]:
        """Raises BankDamaged (or, of an object store, BankError) if reading the table fails, naming it on one line."""
        try:
            yield
        except (*LANCE_ERRORS, KeyError, TypeError) as error:
            reason = " ".join(str(error).split("Backtrace")[0].split())[:300]
            raise self._unreadable(f"{self.uri}: table {name} {what} ({reason})") from error

    def table(self, name: str) -> Any:
        """A table at its newest version. Only the boundary protocol writes through it."""
        with self._sound(name, "cannot be opened"):
            return self._db.open_table(name)

    def boundaries(self) -> list[BoundaryRow]:
        """All committed boundaries, oldest first."""
        table = self.table("boundaries")
        with self._sound("boundaries", "cannot be read"):
            return [BoundaryRow.of(row) for row in table.to_arrow().sort_by("boundary_id").to_pylist()]

    def last_boundary(self) -> BoundaryRow | None:
        """The newest committed boundary: the truth about where the run stands."""
        table = self.table("boundaries")
        with self._sound("boundaries", "cannot be read"):
            count = table.count_rows()
            if count == 0:
                return None
            rows = table.search().where(f"boundary_id >= {count - 1}").to_list()
            return BoundaryRow.of(max(rows, key=lambda r: r["boundary_id"]))

    def boundary(self, at: At = None) -> BoundaryRow | None:
        """The boundary that `at` names: an id, a tag, `step:25`, or None for the newest. Raises ConfigError for an unknown one.

        A row that was read before is taken as it is, so that whoever reads many boundaries looks for none of them again.
        """
        if isinstance(at, BoundaryRow):
            return at
        return self.last_boundary() if at is None else find_boundary(at, self.boundaries(), self.tags.boundaries())

    def tag(self, boundary_id: int) -> str:
        """The tag of a boundary of this run."""
        return boundary_tag(self.run, boundary_id)

    # -- reading what a boundary pins

    def pinned(self, name: str, at: At = None) -> pa.Table:
        """A pinned table as the boundary `at` holds it, sorted by its key."""
        return self._pinned(name, at).sort_by(KEYS[name])

    def _pinned(self, name: str, at: At = None) -> pa.Table:
        row = self.boundary(at)
        if row is None:
            return schemas(self.embedder.dimension)[name].empty_table()
        table = self.table(name)
        with self._sound(name, f"of {row.tag} cannot be read"):
            table.checkout(row.versions[name])
            return migrated(name, table.to_arrow(), row.schema_version, row.dimension)

    def _matching(self, name: str, column: str, ids: Iterable[str]) -> list[dict[str, Any]]:
        """Rows of a pinned table whose `column` is one of `ids`."""
        row, wanted = self.last_boundary(), sorted(set(ids))
        if row is None or not wanted:
            return []
        table = self.table(name)
        chunks = (wanted[i : i + _SQL_LIST] for i in range(0, len(wanted), _SQL_LIST))
        with self._sound(name, f"of {row.tag} cannot be read"):
            table.checkout(row.versions[name])
            return [r for chunk in chunks for r in table.search().where(f"{column} IN {quoted(chunk)}").to_list()]

    def read_cards(self, at: At = None, *, vectors: bool = False) -> list[SkillCard]:
        """The cards of a boundary by id, whatever their state; their own `vector` stays empty unless asked for."""
        held = self.holding(at)
        if not vectors:
            return list(held)
        return [c.model_copy(update={"vector": tuple(v.tolist())}) for c, v in zip(held, held.vectors, strict=True)]

    def holding(self, at: At = None) -> Holding:
        """The cards of a boundary and their vectors, each card read when somebody looks at it."""
        row = self.boundary(at)
        if row is not None and self._at_hand is not None and self._at_hand[0] == row.versions["cards"]:
            return self._at_hand[1]
        rows = self._pinned("cards", row)
        order = pc.sort_indices(rows["card_id"])  # a table is sorted faster without its vectors
        return Holding(
            rows.drop_columns(["vector"]).take(order),
            self._matrix(rows)[order.to_numpy()],
            lambda: self._sound("cards", "holds a damaged card"),
        )

    def keep_at_hand(self, row: BoundaryRow, cards: Holding) -> None:
        """Remember what a boundary that was just committed left in `cards`: a version of a table never changes."""
        self._at_hand = (row.versions["cards"], cards)

    def read_tombstones(self, at: At = None) -> list[Tombstone]:
        """All tombstones of a boundary, lifted ones included, by id."""
        return self._tombstones(self.pinned("tombstones", at))

    def read_events(self, at: At = None) -> list[dict[str, Any]]:
        """The ledger of a boundary: everything that happened to its cards, by event id."""
        rows = self.pinned("events", at).to_pylist()
        with self._sound("events", "holds a damaged event"):
            return [row | {"payload": json.loads(row["payload"])} for row in rows]

    def read_failures(self, at: At = None) -> list[FailureRecord]:
        """Every failure of a boundary with where it stands, by id."""
        return self._failures(self.pinned("failures", at).to_pylist())

    def pending_failures(self, at: At = None) -> list[PendingFailure]:
        """The failures that wait for the judge, by id, with their attempts as of that boundary."""
        rows = self.pinned("failures", at)
        records = self._failures([row for row in rows.to_pylist() if row["state"] == PENDING])
        return [PendingFailure(r.failure, r.attempts) for r in records]

    def _tombstones(self, rows: pa.Table) -> list[Tombstone]:
        with self._sound("tombstones", "holds a damaged tombstone"):
            return [Tombstone.of(row) for row in rows.drop_columns(["vector"]).to_pylist()]

    def _failures(self, rows: Sequence[Mapping[str, Any]]) -> list[FailureRecord]:
        with self._sound("failures", "holds a damaged failure"):
            return [FailureRecord.of(row) for row in rows]

    def _matrix(self, rows: pa.Table) -> np.ndarray:
        column = rows["vector"].combine_chunks()
        flat = column.flatten() if len(rows) else pa.array([], pa.float32())
        return flat.to_numpy(zero_copy_only=False).reshape(len(rows), self.embedder.dimension).astype(np.float32)

    def read_state(self, at: At = None, *, failure_ids: Collection[str] = (), use_keys: Collection[str] = ()) -> BankState:
        """What the plan of the next boundary needs: `failure_ids` and `use_keys` are those that its commit mentions.

        With `at`, cards and tombstones are those of an earlier boundary.
        """
        buried = self.pinned("tombstones", at)
        records = self._failures(self._matching("failures", "state", [PENDING]) + self._matching("failures", "failure_id", failure_ids))
        return BankState(
            last=self.last_boundary(),
            run=self.run,
            cards=self.holding(at),
            tombstones=tuple(self._tombstones(buried)),
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

    def stored_replies(self, failure_ids: Sequence[str] | None = None) -> list[StoredReply]:
        """Every reply about these failures (None: about any), usable or not: by failure, then as they came."""
        return self._replies.kept(failure_ids)

    def failures_asked_about(self, failure_ids: Sequence[str]) -> set[str]:
        """Those of them about which the judge was called, whatever came of it."""
        return self._replies.asked_about(failure_ids)

    def count_cut_replies(self, failure_id: str, prompt_hash: str, model: str) -> int:
        """Replies about a failure, to this prompt by this model, that were cut short."""
        return self._replies.cut(failure_id, prompt_hash, model)

    def judge_calls(self) -> list[Spent]:
        """What every judge call used, whether its reply was usable or not, or did not come."""
        return self._replies.spent()

    def judge_trouble(self, failure_ids: Sequence[str]) -> dict[str, list[str]]:
        """What was wrong with each call about these failures that brought no usable reply."""
        return self._replies.trouble(failure_ids)

    def count_attempts(self, failure_ids: Sequence[str]) -> dict[str, int]:
        """Unsuccessful judge calls about each failure, as they happened (rolled back by nothing)."""
        return self._replies.attempts(failure_ids)
