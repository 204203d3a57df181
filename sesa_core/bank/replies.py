"""Judge replies as the bank keeps them: paid for, so stored the moment they arrive and never rolled back.

Invariant: at most one usable reply per failure, prompt and model (the first wins); every other reply and every call that
brought none is a row of its own, so that attempts can be counted. Writers need no boundary and no lock of the bank.
"""

import json
import threading
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import pyarrow as pa

from sesa_core.bank.tables import KEYS, to_json
from sesa_core.judge.base import CardDraft, Distillation, ReplyState, Usage

NO_REPLY = "unavailable"  # a call that brought no reply at all


@dataclass(frozen=True)
class Spent:
    """One call: `state` is its reply's, or `NO_REPLY`."""

    model: str
    state: str
    usage: Usage


@dataclass(frozen=True)
class StoredReply:
    """A reply as it was read when it came. `boundary_id` is the boundary that it was asked for."""

    boundary_id: int
    reply: Distillation


def _draft_of(text: str) -> CardDraft | None:
    fields = json.loads(text)
    if fields is None:
        return None
    return CardDraft(**{n: tuple(v) if isinstance(v, list) else v for n, v in fields.items()})


def _row(reply: Distillation, boundary: int) -> dict[str, Any]:
    key = f"{reply.failure_id}/{reply.prompt_hash}/{reply.model}"
    return {
        "reply_id": key if reply.state is ReplyState.OK else f"{key}/{uuid.uuid4().hex}",
        "failure_id": reply.failure_id,
        "prompt_hash": reply.prompt_hash,
        "model": reply.model,
        "state": reply.state.value,
        "boundary_id": boundary,
        "draft": to_json(asdict(reply.draft) if reply.draft is not None else None),
        "reply": reply.reply,
        "reason": reply.reason,
        "usage": to_json(asdict(reply.usage)),
    }


def _reply_of(row: Mapping[str, Any]) -> Distillation:
    names = ("failure_id", "prompt_hash", "model", "reply", "reason")
    usage = Usage(**json.loads(row["usage"]))
    return Distillation(state=ReplyState(row["state"]), draft=_draft_of(row["draft"]), usage=usage, **{n: row[n] for n in names})


class Table(Protocol):
    """The part of a LanceDB table that is used here."""

    schema: pa.Schema

    def merge_insert(self, on: str) -> Any: ...

    def search(self) -> Any: ...


def quoted(values: Collection[str]) -> str:
    """An SQL list of text literals, sorted."""
    return "(" + ", ".join("'" + v.replace("'", "''") + "'" for v in sorted(set(values))) + ")"


class Replies:
    """The `distillations` table. Safe to use from several threads."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._lock = threading.Lock()

    def _insert(self, row: dict[str, Any]) -> None:
        rows = pa.Table.from_pylist([row], schema=self._table.schema)
        with self._lock:
            self._table.merge_insert(KEYS["distillations"]).when_not_matched_insert_all().execute(rows)

    def add(self, reply: Distillation, boundary: int) -> None:
        """Keep a reply; a second usable one about the same failure, prompt and model changes nothing."""
        self._insert(_row(reply, boundary))

    def add_failed_call(self, failure_id: str, prompt_hash: str, model: str, reason: str, boundary: int) -> None:
        """Record a call that brought no reply at all."""
        empty = _row(Distillation(failure_id, prompt_hash, model, ReplyState.EMPTY, None, "", Usage(), reason), boundary)
        self._insert(empty | {"state": NO_REPLY})

    def _rows(self, failure_ids: Sequence[str]) -> list[dict[str, Any]]:
        if not failure_ids:
            return []
        with self._lock:
            return self._table.search().where(f"failure_id IN {quoted(failure_ids)}").to_list()

    def kept(self, failure_ids: Sequence[str] | None = None) -> list[StoredReply]:
        """Every reply that came about these failures (None: about any), whatever its state: by failure, then as they came."""
        found = self._as_they_came(failure_ids)
        replies = [StoredReply(row["boundary_id"], _reply_of(row)) for row in found if row["state"] != NO_REPLY]
        return sorted(replies, key=lambda r: r.reply.failure_id)

    def _as_they_came(self, failure_ids: Sequence[str] | None) -> list[dict[str, Any]]:
        """Rows in the order of boundaries, those of one boundary in the order in which they were added."""
        if failure_ids is not None and not failure_ids:
            return []
        with self._lock:
            query = self._table.search().with_row_id(True)
            rows = (query if failure_ids is None else query.where(f"failure_id IN {quoted(failure_ids)}")).to_list()
        return sorted(rows, key=lambda r: (r["boundary_id"], r["_rowid"]))

    def usable(self, failure_ids: Sequence[str], prompt_hash: str, model: str) -> list[Distillation]:
        """The `ok` replies to this prompt by this model, in the order of their failures' ids."""
        wanted = (prompt_hash, model, ReplyState.OK.value)
        rows = (r for r in self._rows(failure_ids) if (r["prompt_hash"], r["model"], r["state"]) == wanted)
        return sorted((_reply_of(r) for r in rows), key=lambda r: r.failure_id)

    def cut(self, failure_id: str, prompt_hash: str, model: str) -> int:
        """Replies about a failure, to this prompt by this model, that were cut short."""
        wanted = (prompt_hash, model, ReplyState.TRUNCATED.value)
        return sum((r["prompt_hash"], r["model"], r["state"]) == wanted for r in self._rows([failure_id]))

    def spent(self) -> list[Spent]:
        """What every call used, whether its reply was usable or not, or did not come."""
        with self._lock:
            rows = self._table.search().select(["model", "state", "usage"]).to_list()
        return [Spent(row["model"], row["state"], Usage(**json.loads(row["usage"]))) for row in rows]

    def trouble(self, failure_ids: Sequence[str]) -> dict[str, list[str]]:
        """What was wrong with each call about these failures that did not bring a usable reply, as they were made."""
        told: dict[str, list[str]] = {name: [] for name in failure_ids}
        for row in self._as_they_came(failure_ids):
            if row["state"] != ReplyState.OK.value:
                told[row["failure_id"]].append(f"{row['state']}: {row['reason']}")
        return told

    def asked_about(self, failure_ids: Sequence[str]) -> set[str]:
        """Those of them about which a call was made, whatever came of it."""
        return {row["failure_id"] for row in self._rows(failure_ids)}

    def attempts(self, failure_ids: Sequence[str]) -> dict[str, int]:
        """Calls about each failure, by any prompt and model, that did not bring a usable reply."""
        counts = dict.fromkeys(failure_ids, 0)
        for row in self._rows(failure_ids):
            counts[row["failure_id"]] += row["state"] != ReplyState.OK.value
        return counts
