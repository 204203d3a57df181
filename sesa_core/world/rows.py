"""Reads JSON lines that a person wrote: each row is what was meant, or a fault with its line, what is wrong and how to mend it.

Invariant: a file is one line at a time in memory. A byte order mark, blank lines and Windows line ends are no faults. Edge case:
a row that is well-formed JSON may still hold half of a surrogate pair, which no other program takes as text.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from sesa_core.errors import ConfigError
from sesa_core.text.normalize import normalize

T = TypeVar("T")
_MARK = b"\xef\xbb\xbf"
_SHOWN = 80  # characters of a faulty line


@dataclass(frozen=True)
class Fault:
    """`value` is what stands there, `remedy` what is wrong with it and what to write instead."""

    value: object
    remedy: str


class Faults:
    """What is wrong in one file, as it is found; the first line that is wrong is told, the others are counted."""

    def __init__(self, file: Path) -> None:
        self.file, self._lines = file, set[int]()
        self._first: tuple[int, Fault] | None = None

    def add(self, line: int, fault: Fault) -> None:
        self._lines.add(line)
        if self._first is None or line < self._first[0]:
            self._first = line, fault

    def refuse(self) -> None:
        """Raises ConfigError if anything is wrong."""
        if self._first is None:
            return
        line, fault = self._first
        more = len(self._lines) - 1
        told = f" ({more} more {'lines are' if more > 1 else 'line is'} wrong)" if more else ""
        raise ConfigError(f"{self.file}, line {line}", fault.value, fault.remedy + told)


def rows(file: Path) -> Iterator[tuple[int, dict[str, Any] | Fault]]:
    """(number, row) of every line that is not blank. Raises ConfigError for a file that cannot be read at all."""
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                text = (line.removeprefix(_MARK) if number == 1 else line).strip()
                if text:
                    yield number, _row(text)
    except OSError as error:
        unreadable(file, error)


def parsed(file: Path, parse: Callable[[dict[str, Any]], T | Fault], faults: Faults) -> Iterator[tuple[int, T]]:
    """(line, what `parse` makes of it) of every row that is right; what is wrong with the others goes to `faults`."""
    for line, row in rows(file):
        meant = row if isinstance(row, Fault) else parse(row)
        if isinstance(meant, Fault):
            faults.add(line, meant)
        else:
            yield line, meant


def unreadable(file: Path, error: OSError) -> NoReturn:
    raise ConfigError("world.path", str(file.parent), f"{file} cannot be read: {error.strerror or error}") from None


def _row(line: bytes) -> dict[str, Any] | Fault:
    try:
        text = line.decode()
        row = json.loads(text)
        if b"\\u" in line:
            json.dumps(row, ensure_ascii=False).encode()
    except UnicodeDecodeError as error:
        return Fault(line[:_SHOWN].decode(errors="replace"), f"byte {error.start + 1} is not UTF-8: save the file as UTF-8")
    except UnicodeEncodeError as error:
        return Fault(shown(text), f"it holds half of a surrogate pair, {ascii(error.object[error.start])}: write the character itself")
    except json.JSONDecodeError as error:
        return Fault(shown(text), f"it is not JSON ({error.msg}, column {error.colno}): write one object per line")
    except (ValueError, RecursionError):
        return Fault(shown(text), "it holds a number or a nesting beyond all bounds: write one plain object per line")
    return row if isinstance(row, dict) else Fault(shown(text), "it is JSON but no object: write one object per line")


def shown(row: object) -> str:
    """A row as a message quotes it."""
    text = row if isinstance(row, str) else json.dumps(row, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def says_something(text: object) -> bool:
    """Whether it is text with a letter or a digit: anything else equals no answer under `normalize`."""
    return isinstance(text, str) and bool(normalize(text))
