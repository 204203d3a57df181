"""Cards and tombstones as one Parquet table, for other tools: the columns of `cards`, and a `tombstone` that is empty for a card.

Invariant: reading gives what was written, or the file is refused with row, card and field named. Edge case: without vectors
the column is there and its lists are empty.
"""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sesa_core.bank.exchange.records import Record, checked, record_from
from sesa_core.cards.schema import arrow_schema
from sesa_core.errors import ConfigError

_BURIAL = pa.struct(
    [
        *(pa.field("tombstone_id", pa.string()), pa.field("boundary_id", pa.int64()), pa.field("reason", pa.string())),
        *(pa.field("lifted_boundary", pa.int64()), pa.field("expires_boundary", pa.int64())),
    ]
)


def _schema() -> pa.Schema:
    columns = [pa.field(f.name, f.type, f.nullable) for f in arrow_schema(1) if f.name not in ("vector", "content_hash")]
    return pa.schema([*columns, pa.field("vector", pa.list_(pa.float32())), pa.field("tombstone", _BURIAL)])


def write(path: Path, records: Sequence[Record]) -> None:
    pq.write_table(pa.Table.from_pylist([r.fields() for r in records], schema=_schema()), path)


def read(path: Path) -> list[Record]:
    """Raises ConfigError."""
    try:
        rows = pq.read_table(path).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(path.name, None, f"it is not a whole Parquet file ({str(error).splitlines()[0]})") from error
    return checked([record_from(f"{path.name}, row {n}", row) for n, row in enumerate(rows, start=1)], path.name)
