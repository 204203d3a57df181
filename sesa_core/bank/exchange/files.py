"""Which file is written and read how: by its name, or by what a person says. A written file is whole or not there.

Invariant: an export never overwrites anything. Edge case: a folder is a collection of Agent Skills.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sesa_core.bank.exchange import agent_skills, jsonl, parquet
from sesa_core.bank.exchange.records import Record
from sesa_core.errors import ConfigError, UserError


@dataclass(frozen=True)
class Format:
    write: Callable[[Path, Sequence[Record]], None]
    read: Callable[[Path], list[Record]]
    is_folder: bool = False


FORMATS = {
    "jsonl": Format(jsonl.write, jsonl.read),
    "parquet": Format(parquet.write, parquet.read),
    "skills": Format(agent_skills.write, agent_skills.read, is_folder=True),
}


def format_of(path: Path, name: str | None = None) -> Format:
    """The named format, else what the file's name says. Raises ConfigError."""
    if name is None:
        name = {".jsonl": "jsonl", ".parquet": "parquet"}.get(path.suffix.lower(), "skills" if path.is_dir() or not path.suffix else None)
    if name not in FORMATS:
        raise ConfigError("format", name or path.name, f"the formats are {', '.join(FORMATS)}, told by .jsonl, .parquet or a folder")
    return FORMATS[name]


def write_file(path: Path, records: Sequence[Record], name: str | None = None) -> None:
    """Raises UserError if there is something at `path` already, or it cannot be written."""
    chosen = format_of(path, name)
    if path.exists():
        raise UserError(f"{path} is there already: give another name, or move it away")
    partial = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if chosen.is_folder:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
        chosen.write(partial, records)
        os.rename(partial, path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from error


def read_file(path: Path, name: str | None = None) -> list[Record]:
    """Raises ConfigError naming file, card and field of the first thing that is wrong; nothing is taken in then."""
    if not path.exists():
        raise UserError(f"there is no file {path}")
    return format_of(path, name).read(path)
