"""Stored rollouts as games: who posed a problem and who played it, where a pattern stands in them, and their statistics.

Pure, but for `find_game`, `find_target` and `find_posed`, which read files one by one and stop where they found what they look for.
Invariant: a game is what one step played; the proposals of a problem from the pool are those of the step that posed it.
Edge case: proposals that posed no problem are a game of their own, without a question.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sesa_core.means import mean_if_any
from sesa_core.rollout.stored import LISTING, StepFile, StoredRollout, read_step
from sesa_core.types import Ending, Role, TurnKind

GROUPINGS = ("step", "segment", "role", "hops", "ending")


@dataclass(frozen=True)
class Game:
    """One problem as one step played it. Without `problem_id`: the proposals for one target that posed no problem."""

    problem_id: str
    proposals: tuple[StoredRollout, ...]
    rollouts: tuple[StoredRollout, ...] = ()

    @property
    def about(self) -> StoredRollout:
        """Any of its rollouts: question, target and answers are the same in all."""
        return (*self.rollouts, *self.proposals)[0]

    @property
    def target_id(self) -> str:
        return next((r.target_id for r in (*self.rollouts, *self.proposals) if r.target_id), "")

    @property
    def solved(self) -> int:
        return sum((r.reward or 0) > 0 for r in self.rollouts)

    @property
    def equal_rewards(self) -> bool:
        """Whether the solver's rollouts, at least two, all earned the same: then none has an advantage."""
        return equal([r.reward for r in self.rollouts if r.reward is not None])

    def arm_rewards(self, rollout: StoredRollout) -> list[float]:
        """Rewards of the solver's rollouts that saw cards of the problem, or of those that saw none, as `rollout` did."""
        saw = bool(rollout.relevant_cards)
        return [r.reward for r in self.rollouts if r.reward is not None and bool(r.relevant_cards) == saw]

    def withheld(self, rollout: StoredRollout) -> list[str]:
        """Cards that others of the group saw and this rollout did not."""
        seen = {c.card_id: None for r in self.rollouts for c in r.relevant_cards}
        return [c for c in seen if c not in {own.card_id for own in rollout.relevant_cards}] if rollout.role is Role.SOLVER else []


def equal(rewards: Sequence[float]) -> bool:
    """Whether these, at least two, are the same."""
    return len(rewards) > 1 and len(set(rewards)) == 1


def problem_ids(rollouts: Sequence[StoredRollout]) -> list[str]:
    """The problems of a step: those that were played in their order, then those that were only posed."""
    played = [r.problem_id for r in rollouts if r.role is Role.SOLVER]
    return list(dict.fromkeys([*played, *(r.problem_id for r in rollouts if r.problem_id)]))


def telling_problem(rollouts: Sequence[StoredRollout]) -> str:
    """The first problem of a step that the solver's rollouts did not all play alike, else the first one; "" if there is none."""
    known = problem_ids(rollouts)
    rewards: dict[str, set[float]] = {problem: set() for problem in known}
    for rollout in rollouts:
        if rollout.role is Role.SOLVER and rollout.reward is not None:
            rewards[rollout.problem_id].add(rollout.reward)
    return next((problem for problem in known if len(rewards[problem]) > 1), next(iter(known), ""))


def game(problem_id: str, rollouts: Sequence[StoredRollout]) -> Game:
    """What a step has of a problem."""
    own = [r for r in rollouts if r.problem_id == problem_id]
    return Game(problem_id, tuple(r for r in own if r.role is Role.PROPOSER), tuple(r for r in own if r.role is Role.SOLVER))


def games_of_target(target_id: str, rollouts: Sequence[StoredRollout]) -> list[Game]:
    """The problems that were posed for a target, then its other proposals, as far as there are any."""
    asked = [r for r in rollouts if r.role is Role.PROPOSER and r.group_id == target_id]
    others = tuple(r for r in asked if not r.problem_id)
    return [game(p, rollouts) for p in dict.fromkeys(r.problem_id for r in asked if r.problem_id)] + ([Game("", others)] if others else [])


def listing(rollouts: Sequence[StoredRollout]) -> list[dict[str, Any]]:
    """One row for each problem of a step."""
    games = [game(p, rollouts) for p in problem_ids(rollouts)]
    return [
        {
            "problem": g.problem_id,
            "solved": f"{g.solved} of {len(g.rollouts)}" if g.rollouts else "not played",
            "question": g.about.question,
        }
        for g in games
    ]


def rejections(rollouts: Sequence[StoredRollout]) -> dict[str, int]:
    """What became of a step's proposals, `valid` first, then the reasons by how often they came."""
    fates = Counter(r.rejection or "dropped" for r in rollouts if r.role is Role.PROPOSER and not r.valid)
    return {"valid": sum(r.valid for r in rollouts)} | dict(fates.most_common())


def find_problem(files: Sequence[StepFile], wanted: str) -> tuple[StepFile | None, list[str], list[str]]:
    """The newest step with problems whose id is `wanted` or begins so, their ids, and all ids that were seen on the way."""
    return _newest(files, wanted, problem_ids)


def find_target(files: Sequence[StepFile], wanted: str) -> tuple[StepFile | None, list[str], list[str]]:
    """The same for the targets that the proposer was given."""
    return _newest(files, wanted, lambda rollouts: [r.group_id for r in rollouts if r.role is Role.PROPOSER])


def _newest(files: Sequence[StepFile], wanted: str, ids_of: Any) -> tuple[StepFile | None, list[str], list[str]]:
    seen: dict[str, None] = {}
    for file in reversed(files):
        ids = list(dict.fromkeys(ids_of(read_step(file, LISTING))))
        found = [wanted] if wanted in ids else [i for i in ids if wanted and i.startswith(wanted)]
        if found:
            return file, found, list(seen)
        seen |= dict.fromkeys(ids)
    return None, [], list(seen)


def find_posed(files: Sequence[StepFile], problem_id: str, before: int) -> tuple[StoredRollout, ...]:
    """The proposals that posed a problem, from the newest step before `before` that has any."""
    for file in reversed([f for f in files if f.step < before]):
        if any(r.role is Role.PROPOSER and r.problem_id == problem_id for r in read_step(file, LISTING)):
            return game(problem_id, read_step(file)).proposals
    return ()


@dataclass(frozen=True)
class Hit:
    """Where a pattern stands in a rollout: `place` says in which of its texts."""

    rollout: StoredRollout
    place: str
    text: str
    start: int
    end: int

    def around(self, width: int) -> tuple[str, str, str]:
        """The text before, at and after the hit on one line, `width` characters on either side; `…` where it was cut."""
        before, hit, after = (
            " ".join(t.split(" ")) for t in (self.text[: self.start], self.text[self.start : self.end], self.text[self.end :])
        )
        return ("…" if len(before) > width else "") + before[-width:], hit, after[:width] + ("…" if len(after) > width else "")


def hits(pattern: re.Pattern[str], rollouts: Iterable[StoredRollout]) -> Iterator[Hit]:
    """Every text with the pattern in it, once each. A question that a group played counts for the first rollout of the group alone."""
    known: set[tuple[StepFile, str]] = set()
    for rollout in rollouts:
        group = (rollout.place, rollout.group_id)
        texts = list(_texts(rollout))
        if rollout.role is Role.SOLVER and group not in known:
            texts.insert(0, ("question", rollout.question))
        known.add(group)
        for place, text in texts:
            if (found := pattern.search(text)) is not None:
                yield Hit(rollout, place, text, *found.span())


def _texts(rollout: StoredRollout) -> Iterator[tuple[str, str]]:
    searches = 0
    for turn in rollout.turns:
        if turn.thought:
            yield "thought", turn.thought
        searches += turn.kind is TurnKind.SEARCH
        yield (f"search {searches}" if turn.kind is TurnKind.SEARCH else str(turn.kind)), turn.text
        yield from ((f"passage {searches}.{i}", p.title) for i, p in enumerate(turn.passages, 1))


@dataclass
class _Tally:
    """The numbers of one row of the statistics, while they are gathered."""

    rewards: list[float] = field(default_factory=list)
    endings: Counter = field(default_factory=Counter)
    turns: int = 0
    searches: int = 0
    tokens: list[int] = field(default_factory=list)
    valid: list[bool] = field(default_factory=list)
    cards: list[bool] = field(default_factory=list)
    questions: set[str] = field(default_factory=set)

    def add(self, rollout: StoredRollout) -> None:
        self.rewards += [] if rollout.reward is None else [rollout.reward]
        self.endings[rollout.ending] += 1
        self.turns += len(rollout.turns)
        self.searches += rollout.searches
        self.tokens += [] if rollout.response_tokens is None else [rollout.response_tokens]
        if rollout.role is Role.SOLVER:
            self.cards.append(bool(rollout.relevant_cards))
        elif not rollout.dropped:
            self.valid.append(rollout.valid)
        question = rollout.question or (rollout.final or "" if rollout.role is Role.PROPOSER else "")
        self.questions |= {question} - {""}

    def row(self) -> dict[str, Any]:
        count = self.endings.total()
        return {
            "count": count,
            "reward": mean_if_any(self.rewards),
            "endings": {str(e): self.endings[e] / count for e in Ending if self.endings[e]},
            "valid": mean_if_any(self.valid),
            "turns": self.turns / count,
            "searches": self.searches / count,
            "tokens": mean_if_any(self.tokens),
            "shown_cards": mean_if_any(self.cards),
            "questions": len(self.questions),
        }


def statistics(rollouts: Iterable[StoredRollout], by: str) -> list[dict[str, Any]]:
    """One row for each role and value of `by` (one of `GROUPINGS`), in order; a mean over nothing is None.

    `reward` and `tokens` are means over the rollouts that have them, `valid` is a share of the proposals that were not dropped,
    `shown_cards` of the solver's rollouts: those that saw a card which is no decoy. `questions` counts different ones.
    """
    tallies: dict[tuple[Any, Role], _Tally] = {}
    for rollout in rollouts:
        tallies.setdefault((_value(rollout, by), rollout.role), _Tally()).add(rollout)
    order = [*Role], [*Ending]

    def place(key: tuple[Any, Role]) -> tuple[bool, Any, int]:
        value, role = key
        return value is None, order[1].index(value) if by == "ending" else 0 if by == "role" else value or 0, order[0].index(role)

    return [
        ({} if by == "role" else {by: key[0] if key[0] is None else getattr(key[0], "value", key[0])})
        | {"role": key[1].value}
        | tallies[key].row()
        for key in sorted(tallies, key=place)
    ]


def _value(rollout: StoredRollout, by: str) -> Any:
    return getattr(rollout.place, by) if by in ("step", "segment") else getattr(rollout, by)
