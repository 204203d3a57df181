"""Cards and tombstones as JSONL, one a line: lossless, and a run can start from it (`bank.warm_start_path`).

Invariant: every line is a valid record or the whole file is refused, with line, card and field named.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from sesa_core.bank.exchange.records import Record, checked, record_from
from sesa_core.errors import ConfigError


def write(path: Path, records: Sequence[Record]) -> None:
    lines = (json.dumps(r.fields(), ensure_ascii=False, sort_keys=True, allow_nan=False) for r in records)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def read(path: Path) -> list[Record]:
    """Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(path.name, None, f"the file cannot be read as UTF-8 text ({error})") from error
    lines = ((n, line) for n, line in enumerate(text.split("\n"), start=1) if line.strip())
    return checked([record_from(f"{path.name}, line {n}", _fields(f"{path.name}, line {n}", line)) for n, line in lines], path.name)


def _fields(where: str, line: str) -> object:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ConfigError(where, line[:60], f"each line must be one JSON object ({error})") from error
