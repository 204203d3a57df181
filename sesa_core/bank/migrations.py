"""From an older schema of the bank's tables to today's, one version at a time.

Owns `MIGRATIONS`: for a schema version, the pure function that turns a pinned table's rows into those of the next version. A
reader sees an older boundary through them; a writer commits the migrated bank as a boundary of its own before anything else.
Invariant: what cannot be brought to today's schema is refused by name, never guessed. Edge case: `boundaries` itself only
ever gains optional fields inside its JSON columns, since it must be read before any version is known.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from sesa_core.bank.tables import schemas
from sesa_core.cards.schema import SCHEMA_VERSION
from sesa_core.errors import BankError, BankIncompatible

Rows = list[dict[str, Any]]
Migration = Callable[[str, Rows], Rows]

MIGRATIONS: dict[int, Migration] = {}  # the first schema is today's


def check_version(where: str, version: int) -> None:
    """Raises BankIncompatible for a schema that is newer than this SESA, or older than what it can migrate."""
    if version > SCHEMA_VERSION:
        raise BankIncompatible(f"{where} has schema {version}, this SESA knows {SCHEMA_VERSION}")
    missing = next((v for v in range(version, SCHEMA_VERSION) if v not in MIGRATIONS), None)
    if missing is not None:
        raise BankIncompatible(f"{where} has schema {version}, and this SESA (schema {SCHEMA_VERSION}) cannot migrate schema {missing}")


def migrated(name: str, rows: pa.Table, version: int, dimension: int) -> pa.Table:
    """A pinned table of that schema version as one of today's. Raises BankError naming a column that stayed empty."""
    if version == SCHEMA_VERSION:
        return rows
    lines = rows.to_pylist()
    for older in range(version, SCHEMA_VERSION):
        lines = MIGRATIONS[older](name, lines)
    table = pa.Table.from_pylist(lines, schema=schemas(dimension)[name])
    empty = [f.name for f in table.schema if not f.nullable and table[f.name].null_count]
    if empty:
        raise BankError(f"table {name}: the migration from schema {version} left {', '.join(empty)} empty")
    return table
