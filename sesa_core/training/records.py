"""A step's trajectories on disk, in the schema of `rollout/stored.py`: one Parquet file per step, one row per rollout.

Invariant: a file appears whole or not at all, so that whoever reads a run in progress never meets half a step.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sesa_core.rollout.proposer import Proposal
from sesa_core.rollout.stored import SCHEMA
from sesa_core.training.step import StepRecord
from sesa_core.types import Group, Trajectory


def write_trajectories(path: Path, record: StepRecord) -> None:
    """All rollouts of one step, proposers first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f"{path.name}.part")
    pq.write_table(pa.Table.from_pylist(list(_rows(record)), schema=SCHEMA), staged, compression="zstd")
    staged.rename(path)


def _rows(record: StepRecord) -> Iterator[dict[str, Any]]:
    for proposal in record.proposals:
        yield _row(record, proposal.trajectory) | _of_proposal(proposal, record)
    for group in record.round.groups:
        for trajectory, reward in zip(group.trajectories, group.rewards, strict=True):
            yield _row(record, trajectory) | {"reward": reward} | _of_group(group)


def _of_proposal(proposal: Proposal, record: StepRecord) -> dict[str, Any]:
    problem, target = proposal.problem, proposal.target
    return {
        "problem": problem.question if problem else "",
        "problem_id": problem.problem_id if problem else "",
        "origin": problem.origin if problem else "",
        "target_id": target.target_id,
        "hops": target.hops,
        "reference_answers": [target.answer, *target.aliases],
        "rejection": str(proposal.rejection or ""),
        "drop_cause": proposal.dropped or (record.round.dropped.get(problem.problem_id, "") if problem else ""),
    }


def _of_group(group: Group) -> dict[str, Any]:
    problem = group.problem
    return {
        "problem": problem.question,
        "problem_id": problem.problem_id,
        "origin": problem.origin,
        "target_id": problem.target.target_id,
        "hops": problem.target.hops,
        "reference_answers": list(problem.reference_answers),
        "rejection": "",
        "drop_cause": "",
    }


def _row(record: StepRecord, t: Trajectory) -> dict[str, Any]:
    score = record.scores.get((t.role, t.group_id, t.sample))
    turns = [
        {
            "kind": turn.kind.value,
            "text": turn.text,
            "passages": [{"passage_id": p.passage_id, "title": p.title, "text": p.text} for p in turn.passages],
            "tags": turn.tags,
            "thought": turn.thought,
            "left_out": turn.left_out,
        }
        for turn in t.turns
    ]
    return {
        "step": record.step,
        "role": t.role.value,
        "group_id": t.group_id,
        "sample": t.sample,
        "reward": score.reward if score else None,
        "advantage": score.advantage if score else None,
        "ending": t.ending.value,
        "prompt": t.prompt,
        "turns": turns,
        "cards": [{"card_id": c.card_id, "similarity": c.similarity, "text": c.text, "decoy": c.decoy} for c in t.cards],
        "response_tokens": sum(t.response_mask),
        "policy_version": t.policy_version,
    }
