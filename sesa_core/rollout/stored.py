"""Stored rollouts: one Parquet file per step, one row per rollout, enough to read a game again.

Owns the schema, and how a row is read back; `training/records.py` writes it. Invariant: a step's file is read alone, and no more
of it than the columns that are asked for. Edge case: a file of an earlier SESA lacks `LATER` columns; its rollouts say so
(`older`), and what nobody recorded is None.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sesa_core.errors import UserError
from sesa_core.rollout.proposer import problem_id
from sesa_core.types import Ending, Passage, Role, ShownCard, Target, Turn, TurnKind

_PASSAGE = pa.struct([("passage_id", pa.string()), ("title", pa.string()), ("text", pa.string())])
_TURN = pa.struct(
    [
        ("kind", pa.string()),
        ("text", pa.string()),
        ("passages", pa.list_(_PASSAGE)),
        ("tags", pa.int64()),
        ("thought", pa.string()),
        ("left_out", pa.int64()),
    ]
)
_CARD = pa.struct([("card_id", pa.string()), ("similarity", pa.float64()), ("text", pa.string()), ("decoy", pa.bool_())])
SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("role", pa.string()),
        ("group_id", pa.string()),
        ("sample", pa.int64()),
        ("reward", pa.float64()),  # null: the rollout earned none
        ("advantage", pa.float64()),  # null: it was in no update
        ("ending", pa.string()),
        ("prompt", pa.string()),
        ("turns", pa.list_(_TURN)),
        ("cards", pa.list_(_CARD)),
        ("problem", pa.string()),  # the question played, empty for a proposal that is not valid
        ("problem_id", pa.string()),
        ("origin", pa.string()),  # of the problem: proposer or pool
        ("target_id", pa.string()),
        ("hops", pa.int64()),
        ("reference_answers", pa.list_(pa.string())),  # the target's answer and its aliases
        ("rejection", pa.string()),
        ("drop_cause", pa.string()),  # why a proposal is neither valid nor rejected, or why its problem's rollouts count for nothing
        ("response_tokens", pa.int64()),  # sampled tokens
        ("policy_version", pa.int64()),
    ]
)
LATER = frozenset({"advantage", "problem_id", "origin", "target_id", "hops", "drop_cause", "response_tokens"})
FILE = re.compile(r"step-(\d+)\.parquet")

LISTING = ("step", "role", "group_id", "sample", "problem", "problem_id", "reference_answers", "reward", "rejection")
SEARCHING = (
    *(*LISTING, "ending", "turns.list.element.kind", "turns.list.element.text", "turns.list.element.thought"),
    "turns.list.element.passages.list.element.title",
)
COUNTING = (
    *("step", "role", "group_id", "sample", "reward", "ending", "problem", "problem_id", "reference_answers", "rejection", "drop_cause"),
    *("hops", "response_tokens", "turns.list.element.kind", "turns.list.element.text", "cards.list.element.card_id"),
    "cards.list.element.decoy",
)


@dataclass(frozen=True)
class StepFile:
    """Where one attempt at one step lies. `counts`: a boundary names the attempt."""

    step: int
    segment: int
    attempt: int
    counts: bool
    path: Path


@dataclass(frozen=True)
class StoredRollout:
    """One rollout as it was written down. What was not read, or not recorded, is empty or None."""

    place: StepFile
    number: int  # in its step, from 0: proposers first
    role: Role
    group_id: str
    sample: int
    ending: Ending = Ending.FINISHED
    reward: float | None = None
    advantage: float | None = None
    prompt: str = ""
    turns: tuple[Turn, ...] = ()
    cards: tuple[ShownCard, ...] = ()
    question: str = ""  # that was played
    problem_id: str = ""
    origin: str = ""
    target_id: str = ""
    hops: int | None = None
    reference_answers: tuple[str, ...] = ()
    rejection: str = ""
    drop_cause: str = ""
    response_tokens: int | None = None
    policy_version: int = 0
    older: bool = False

    @property
    def trajectory_id(self) -> str:
        """`8/17`: step and number; `8/17@2` in an attempt that does not count."""
        return f"{self.place.step}/{self.number}{'' if self.place.counts else f'@{self.place.attempt}'}"

    @property
    def final(self) -> str | None:
        """The last answer or question, None if none was written."""
        return next((t.text for t in reversed(self.turns) if t.kind in (TurnKind.ANSWER, TurnKind.QUESTION)), None)

    @property
    def searches(self) -> int:
        return sum(t.kind is TurnKind.SEARCH for t in self.turns)

    @property
    def valid(self) -> bool:
        """Of a proposal: its question may be played."""
        return self.role is Role.PROPOSER and bool(self.question)

    @property
    def dropped(self) -> bool:
        """Of a proposal: neither valid nor rejected."""
        return self.role is Role.PROPOSER and not self.question and not self.rejection

    @property
    def relevant_cards(self) -> tuple[ShownCard, ...]:
        return tuple(c for c in self.cards if not c.decoy)


def step_files(run_dir: Path, counting: Collection[tuple[int, int]], others: bool = False) -> list[StepFile]:
    """The stored steps of the attempts (segment, attempt) that count, with `others` of all, by step and attempt. Opens none."""
    found = []
    for path in (run_dir / "segments").glob("*/attempt-*/trajectories/step-*.parquet"):
        segment, attempt, step = path.parts[-4], path.parts[-3].removeprefix("attempt-"), FILE.fullmatch(path.name)
        if step is not None and segment.isdigit() and attempt.isdigit():
            counts = (int(segment), int(attempt)) in counting
            found += [StepFile(int(step[1]), int(segment), int(attempt), counts, path)] if counts or others else []
    return sorted(found, key=lambda f: (f.step, f.attempt))


def read_step(file: StepFile, columns: Sequence[str] | None = None) -> list[StoredRollout]:
    """The rollouts of one step, of which only `columns` (Parquet paths) if given. Raises UserError for a file that cannot be read."""
    try:
        with pq.ParquetFile(file.path) as stored:
            present = {stored.schema.column(i).path for i in range(len(stored.schema))}
            rows = stored.read(columns=_known(columns, present)).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{file.path} cannot be read ({' '.join(str(error).split())[:200]})") from error
    older = bool(LATER - {path.split(".")[0] for path in present})
    return [_rollout(file, number, row, older) for number, row in enumerate(rows)]


def _known(columns: Sequence[str] | None, present: Iterable[str]) -> list[str] | None:
    if columns is None:
        return None
    return [path for path in sorted(present) if any(path == c or path.startswith(f"{c}.") for c in columns)]


def _rollout(file: StepFile, number: int, row: dict[str, Any], older: bool) -> StoredRollout:
    role, question, answers = Role(row["role"]), row.get("problem") or "", tuple(row.get("reference_answers") or ())
    problem = row["group_id"] if role is Role.SOLVER else row.get("problem_id") or ""
    if older and not problem and question and answers:
        problem = problem_id(question, Target("", answers[0], 0))
    return StoredRollout(
        place=file,
        number=number,
        role=role,
        group_id=row["group_id"],
        sample=row["sample"],
        ending=Ending(row.get("ending") or Ending.FINISHED),
        reward=None if row.get("reward") is None else row["reward"] + 0.0,  # no -0.0
        advantage=row.get("advantage"),
        prompt=row.get("prompt") or "",
        turns=tuple(_turn(t) for t in row.get("turns") or ()),
        cards=tuple(
            ShownCard(c["card_id"], c.get("similarity") or 0.0, c.get("text") or "", bool(c.get("decoy"))) for c in row.get("cards") or ()
        ),
        question=question,
        problem_id=problem,
        origin=row.get("origin") or "",
        target_id=row["group_id"] if role is Role.PROPOSER else row.get("target_id") or "",
        hops=row.get("hops"),
        reference_answers=answers,
        rejection=row.get("rejection") or "",
        drop_cause=row.get("drop_cause") or "",
        response_tokens=row.get("response_tokens"),
        policy_version=row.get("policy_version") or 0,
        older=older,
    )


def _turn(turn: dict[str, Any]) -> Turn:
    return Turn(
        kind=TurnKind(turn["kind"]),
        text=turn.get("text") or "",
        passages=tuple(Passage(p.get("passage_id") or "", p["title"], p.get("text") or "") for p in turn.get("passages") or ()),
        tags=turn.get("tags") or 1,
        thought=turn.get("thought") or "",
        left_out=turn.get("left_out") or 0,
    )
