"""Trajectories on disk: one Parquet file per step, one row per rollout, enough to read a game again.

Columns: step, role, group_id, sample, reward (null where there is none), ending, prompt, turns (list of kind, text, passages),
cards, problem (the question played, empty for an invalid proposal), rejection, policy_version.
"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sesa_core.training.step import StepRecord
from sesa_core.types import Trajectory

_PASSAGE = pa.struct([("passage_id", pa.string()), ("title", pa.string()), ("text", pa.string())])
_TURN = pa.struct([("kind", pa.string()), ("text", pa.string()), ("passages", pa.list_(_PASSAGE))])
_CARD = pa.struct([("card_id", pa.string()), ("similarity", pa.float64()), ("text", pa.string())])
SCHEMA = pa.schema(
    [
        ("step", pa.int64()),
        ("role", pa.string()),
        ("group_id", pa.string()),
        ("sample", pa.int64()),
        ("reward", pa.float64()),
        ("ending", pa.string()),
        ("prompt", pa.string()),
        ("turns", pa.list_(_TURN)),
        ("cards", pa.list_(_CARD)),
        ("problem", pa.string()),
        ("reference_answers", pa.list_(pa.string())),
        ("rejection", pa.string()),
        ("policy_version", pa.int64()),
    ]
)


def write_trajectories(path: Path, record: StepRecord) -> None:
    """All rollouts of one step, proposers first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(_rows(record)), schema=SCHEMA), path, compression="zstd")


def _rows(record: StepRecord) -> Iterator[dict]:
    for proposal in record.proposals:
        problem = proposal.problem.question if proposal.problem else ""
        answers = [proposal.target.answer, *proposal.target.aliases]
        yield _row(record.step, proposal.trajectory, None, problem, answers, proposal.rejection or "")
    for group in record.round.groups:
        for trajectory, reward in zip(group.trajectories, group.rewards, strict=True):
            yield _row(record.step, trajectory, reward, group.problem.question, list(group.problem.reference_answers), "")


def _row(step: int, t: Trajectory, reward: float | None, problem: str, answers: list[str], rejection: str) -> dict:
    turns = [
        {
            "kind": turn.kind.value,
            "text": turn.text,
            "passages": [{"passage_id": p.passage_id, "title": p.title, "text": p.text} for p in turn.passages],
        }
        for turn in t.turns
    ]
    return {
        "step": step,
        "role": t.role.value,
        "group_id": t.group_id,
        "sample": t.sample,
        "reward": reward,
        "ending": t.ending.value,
        "prompt": t.prompt,
        "turns": turns,
        "cards": [{"card_id": c.card_id, "similarity": c.similarity, "text": c.text} for c in t.cards],
        "problem": problem,
        "reference_answers": answers,
        "rejection": str(rejection),
        "policy_version": t.policy_version,
    }
