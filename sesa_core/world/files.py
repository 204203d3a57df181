"""A world of a person's own: `corpus.jsonl`, `targets.jsonl` and `questions.jsonl` in one folder.

Owns what these files may hold; the formats are Search-R1's for passages and verl's, or a shorter one, for questions. Invariants:
a world that was checked has no wrong row; the corpus is never in memory as a whole. Edge case: a corpus that is changed while its
index is being built is refused, so that no index holds other passages than its name says.
"""

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from sesa_core.errors import ConfigError
from sesa_core.types import Target
from sesa_core.world.base import HeldOutQuestion
from sesa_core.world.file_rows import SplitQuestion, passage_of, question_of, target_of
from sesa_core.world.passages import Document
from sesa_core.world.rows import Fault, Faults, parsed, rows, unreadable

CORPUS_FILE, TARGETS_FILE, QUESTIONS_FILE = "corpus.jsonl", "targets.jsonl", "questions.jsonl"
FILES = (CORPUS_FILE, TARGETS_FILE, QUESTIONS_FILE)
EXAMPLES = {
    CORPUS_FILE: r'{"id": "1", "contents": "Title\ntext"}',
    TARGETS_FILE: '{"answer": "Paris", "aliases": [], "hops": 1}',
    QUESTIONS_FILE: '{"question": "Who wrote Emma?", "golden_answers": ["Jane Austen"]}',
}
_HASH_DIGITS = 12


class Corpus:
    """The passages of a file, read anew at each iteration."""

    def __init__(self, file: Path) -> None:
        self.file, self._stamp = file, _stamp(file)

    @cached_property
    def count(self) -> int:
        """Counted, and each row checked, when first asked for. Raises ConfigError for the first row that is wrong, or if there is none."""
        faults, lines, digests = Faults(self.file), array("Q"), array("Q")
        for line, passage in parsed(self.file, passage_of, faults):
            lines.append(line)
            digests.append(int.from_bytes(hashlib.blake2b(passage.passage_id.encode(), digest_size=8).digest()))
        for line, fault in _repeated(self.file, lines, digests):
            faults.add(line, fault)
        _refuse(faults, len(lines))
        return len(lines)

    def __iter__(self) -> Iterator[Document]:
        faults = Faults(self.file)
        yield from (passage for _, passage in parsed(self.file, passage_of, faults))
        faults.refuse()
        if _stamp(self.file) != self._stamp:
            raise ConfigError("world.path", str(self.file.parent), f"{self.file} was changed while it was read; start again")


def _repeated(file: Path, lines: Sequence[int], digests: Sequence[int]) -> Iterator[tuple[int, Fault]]:
    """Rows whose id stood before. Digests find them in 16 bytes a row; the ids themselves, read again, prove it."""
    codes, places = np.frombuffer(digests, np.uint64), np.frombuffer(lines, np.uint64)
    order = np.argsort(codes, kind="stable")
    again = np.flatnonzero(codes[order][1:] == codes[order][:-1]) + 1
    if not len(again):
        return
    wanted = {int(line) for i in again for line in places[order[i - 1 : i + 1]]}
    seen: dict[str, int] = {}
    for line, row in rows(file):
        if line not in wanted or isinstance(row, Fault):
            continue
        name = str(row["id"])
        if name in seen:
            yield line, Fault(name, f"the id stands in line {seen[name]} already; give each passage an id of its own")
        seen.setdefault(name, line)


class FilesWorld:
    """A corpus, targets and questions to train with. It knows no fact but what passages say, so it resolves no question."""

    resolve = None
    names: tuple[str, ...] = ()  # not the targets': a list that lacks most names would keep a card's check from looking for others

    def __init__(self, folder: Path) -> None:
        """Reads targets and questions, and hashes the corpus. Raises ConfigError with the file, the line and the remedy."""
        self.folder = folder
        _require_files(folder)
        self._targets = read_targets(folder / TARGETS_FILE)
        self._questions = read_questions(folder / QUESTIONS_FILE)
        self.documents = Corpus(folder / CORPUS_FILE)
        hashes = {name: _content_hash(folder / name) for name in FILES}
        self.index_name = hashes[CORPUS_FILE]
        self.fingerprint = ".".join(f"{name.partition('.')[0]}-{digest}" for name, digest in hashes.items())

    def check(self) -> None:
        """The corpus too: a pass over all of it, which a run that goes on with the same bytes is spared. Raises ConfigError."""
        _ = self.documents.count

    def summary(self) -> str:
        return f"{self.documents.count} passages, {len(self._targets)} targets, {len(self._questions)} questions"

    def targets(self) -> tuple[Target, ...]:
        return self._targets

    def evaluation_questions(self, split: str, count: int) -> list[HeldOutQuestion]:
        """Of each kind in turn, as they stand in the file."""
        own, file = [q.asked for q in self._questions if q.split in ("", split)], self.folder / QUESTIONS_FILE
        if not own:
            raise ConfigError("evaluation.split", split, f"no row of {file} is of it; give rows of it, or without a split")
        if len(own) < count:
            raise ConfigError("evaluation.questions", count, f"{file} has {len(own)} of the {split} split; ask for at most that")
        met = Counter[str]()
        turns = []
        for place, question in enumerate(own):
            turns.append((met[question.kind], place))
            met[question.kind] += 1
        return [own[place] for _, place in sorted(turns)[:count]]

    def held_out(self, count: int) -> Iterator[str]:
        """All of the file, however many an evaluation asks."""
        return (q.asked.question for q in self._questions)


def _require_files(folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError("world.path", str(folder), f"there is no such folder; give one with {', '.join(FILES)}")
    missing = [name for name in FILES if not (folder / name).exists()]
    if missing:
        raise ConfigError("world.path", str(folder), f"it has no {' and no '.join(missing)}; a world of files needs {', '.join(FILES)}")


def read_targets(file: Path) -> tuple[Target, ...]:
    """Raises ConfigError for the first row that is wrong, and if there is none."""
    faults, first, found = Faults(file), dict[str, int](), []
    for line, target in parsed(file, target_of, faults):
        before = first.setdefault(target.target_id, line)
        if before == line:
            found.append(target)
        else:
            faults.add(line, Fault(target.answer, f"line {before} has this answer with the same hops and relation; leave one of them out"))
    _refuse(faults, len(found))
    return tuple(found)


def read_questions(file: Path) -> tuple[SplitQuestion, ...]:
    """Raises ConfigError for the first row that is wrong, and if there is none."""
    faults = Faults(file)
    found = tuple(question for _, question in parsed(file, question_of, faults))
    _refuse(faults, len(found))
    return found


def _refuse(faults: Faults, usable: int) -> None:
    faults.refuse()
    if not usable:
        raise ConfigError("world.path", str(faults.file.parent), f"{faults.file} is empty; give rows like {EXAMPLES[faults.file.name]}")


def _content_hash(file: Path) -> str:
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()[:_HASH_DIGITS]
    except OSError as error:
        unreadable(file, error)


def _stamp(file: Path) -> tuple[int, int]:
    try:
        known = file.stat()
    except OSError as error:
        unreadable(file, error)
    return known.st_mtime_ns, known.st_size
