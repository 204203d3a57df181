"""Full-text search in an embedded LanceDB table, with a small rerank for coverage.

LanceDB scores the title and the `keys` column separately (BM25) and the two are added. What BM25 misses is that a query
like "Belize trade" must match BOTH words: so the best candidates are ranked again by score x (share of the query's words
that the passage holds) squared, with a bonus for an exact title. Ties go to the smaller passage id, so a corpus can say
which of two namesakes comes first by the ids it gives.

In the embedded world `keys` holds values and names but not the labels of facts: a query must name an entity and its
section, or a value. That is on purpose (knowing the section is what is to be learned), and no help to a question's wording.
"""

import asyncio
import os
import re
import shutil
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from itertools import islice
from pathlib import Path
from typing import Protocol

import lancedb
import pyarrow as pa
from lancedb.index import FTS
from lancedb.query import BooleanQuery, MatchQuery, Occur

from sesa_core.errors import SearchUnavailable
from sesa_core.types import Passage

TABLE = "passages"
_SCHEMA = pa.schema([(name, pa.string()) for name in ("passage_id", "title", "text", "keys")])
_BATCH_ROWS = 65_536  # each becomes a fragment of the table
TITLE_BOOST = 1.2
EXACT_TITLE_BONUS = 1.25
_CANDIDATES = 24  # BM25 candidates that the rerank looks at
_IN_FLIGHT = 16
_FAILURES = (RuntimeError, OSError, ValueError, FutureTimeout)  # what lancedb raises for a missing or damaged table


class Indexable(Protocol):
    """A passage to index. `keys` is the searched body; `text` is what the searcher reads."""

    passage_id: str
    title: str
    text: str
    keys: str


def build_index(folder: Path, passages: Iterable[Indexable]) -> Path:
    """Make the index in `folder` unless it is there. Built aside, then renamed: a killed build leaves nothing half."""
    folder = Path(folder).absolute()
    if folder.exists():
        return folder
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.building")
    shutil.rmtree(aside, ignore_errors=True)
    aside.parent.mkdir(parents=True, exist_ok=True)
    try:
        table = lancedb.connect(aside).create_table(TABLE, schema=_SCHEMA)
        for rows in _batches(passages):
            table.add(rows)
        for column in ("title", "keys"):
            table.create_index(column, config=FTS(stem=False, remove_stop_words=False))
        aside.rename(folder)
    except _FAILURES as error:
        if not folder.exists():  # else another process was faster, which is fine
            raise SearchUnavailable(f"the search index in {folder} could not be built: {error}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def _batches(passages: Iterable[Indexable]) -> Iterator[pa.Table]:
    """A corpus need not fit into memory. Read here and not by LanceDB, so that what a corpus raises comes through as it is."""
    left = iter(passages)
    while rows := list(islice(left, _BATCH_ROWS)):
        yield pa.table({name: [getattr(row, name) for row in rows] for name in _SCHEMA.names}, schema=_SCHEMA)


class LanceSearch:
    """The search backend over an index that `build_index` made. Thread-safe; pickles by its path.

    `cache_size` bounds the least-recently-used cache of (query, top_k); `timeout` is in seconds, per batch.
    """

    def __init__(self, folder: Path, cache_size: int = 50_000, timeout: float = 60.0) -> None:
        self._folder, self._cache_size, self._timeout = Path(folder).absolute(), cache_size, timeout
        self._cache: OrderedDict[tuple[str, int], list[Passage]] = OrderedDict()
        self._lock = threading.Lock()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="lance-search").start()
        self._table = self._run(self._open())

    def __reduce__(self) -> tuple:
        return LanceSearch, (self._folder, self._cache_size, self._timeout)

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Passage]]:
        """For each query at most `top_k` passages, best first. Raises SearchUnavailable; an empty list means no match."""
        with self._lock:
            known = {q: self._cache[q, top_k] for q in queries if (q, top_k) in self._cache}
            for query in known:
                self._cache.move_to_end((query, top_k))
        fresh = [q for q in dict.fromkeys(queries) if q not in known]
        known |= zip(fresh, self._run(self._search_all(fresh, top_k)), strict=True) if fresh else {}
        with self._lock:
            self._cache |= {(q, top_k): known[q] for q in fresh}
            while len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)
        return [list(known[q]) for q in queries]

    def _run(self, work):
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result(self._timeout)
        except _FAILURES as error:
            raise SearchUnavailable(f"search in {self._folder} failed: {error}") from error

    async def _open(self):
        return await (await lancedb.connect_async(self._folder)).open_table(TABLE)

    async def _search_all(self, queries: Sequence[str], top_k: int) -> list[list[Passage]]:
        gate = asyncio.Semaphore(_IN_FLIGHT)

        async def one(query: str) -> list[Passage]:
            async with gate:
                return await self._search_one(query, top_k)

        return await asyncio.gather(*map(one, queries))

    async def _search_one(self, query: str, top_k: int) -> list[Passage]:
        asked = frozenset(_words(query))
        if not asked:
            return []
        text = " ".join(_words(query))
        match = BooleanQuery([(Occur.SHOULD, MatchQuery(text, "title", boost=TITLE_BOOST)), (Occur.SHOULD, MatchQuery(text, "keys"))])
        rows = await self._table.query().nearest_to_text(match).limit(max(_CANDIDATES, 4 * top_k)).to_arrow()
        ranked = sorted(((_rank(row, asked), row) for row in rows.to_pylist()), key=lambda r: (-r[0], r[1]["passage_id"]))
        return [Passage(r["passage_id"], r["title"], r["text"], score) for score, r in ranked[:top_k]]


def _rank(row: dict, asked: frozenset[str]) -> float:
    """BM25 times squared coverage; rounded, so that equal passages tie exactly."""
    title = frozenset(_words(row["title"]))
    covered = len(asked & (title | frozenset(_words(row["keys"])))) / len(asked)
    bonus = EXACT_TITLE_BONUS if title == asked else 1.0
    return round(row["_score"] * covered**2 * bonus, 3)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
