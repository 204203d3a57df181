"""The names that persons give to boundaries: what is worth keeping has a name.

Owns the `tags` table. Invariant: a name stands for one boundary until a person takes it away; reading accepts it, and retention
and compaction keep what it names. Edge case: a bank that was made before there were tags has none.
"""

from typing import Any

import pyarrow as pa

from sesa_core.bank.places import check_tag_name
from sesa_core.bank.replies import quoted
from sesa_core.bank.tables import KEYS
from sesa_core.errors import ConfigError


class Tags:
    """`table` is None for a bank without one, which can then only be read."""

    def __init__(self, table: Any | None) -> None:
        self._table = table

    def rows(self) -> list[dict[str, Any]]:
        """name, boundary_id, by, why; by name."""
        return [] if self._table is None else self._table.to_arrow().sort_by(KEYS["tags"]).to_pylist()

    def boundaries(self) -> dict[str, int]:
        return {row["name"]: row["boundary_id"] for row in self.rows()}

    def add(self, name: str, boundary_id: int, by: str, why: str) -> None:
        """Raises ConfigError for a name that is taken or cannot be one."""
        row = {"name": check_tag_name(name), "boundary_id": boundary_id, "by": by, "why": why}
        insert = self._table.merge_insert(KEYS["tags"]).when_not_matched_insert_all()
        if insert.execute(pa.Table.from_pylist([row], schema=self._table.schema)).num_inserted_rows != 1:
            raise ConfigError("tag", name, f"it names boundary {self.boundaries()[name]} already; take it away first")

    def remove(self, name: str) -> None:
        """Raises ConfigError for a name that is no tag."""
        known = self.boundaries()
        if name not in known:
            raise ConfigError("tag", name, f"the tags are {', '.join(known)}" if known else "there are no tags")
        self._table.delete(f"name IN {quoted([name])}")
