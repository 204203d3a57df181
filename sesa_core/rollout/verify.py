"""The last check of a question: can its target be reached from the proposer's evidence?

`WorldVerifier` asks the closed-form world, which knows every fact and therefore also other valid answers; it refuses a
question about another split than its target's, even where the value happens to be the same. `PolicyVerifier`
is the papers' way: an answerer without search, greedy and without cards, gets the evidence among noise passages and must
reach the target; if it does so without any evidence, the question is too easy. `JudgeVerifier` lets the judge be that answerer.

The last two compare like the rewards do: where the judge decides about answers that equal no reference, it decides about these too.

Invariant: whoever cannot tell rejects nothing. Edge cases: a judge that answers some questions and not others leaves the others
`Undecided`, and so does an answerer that has no room for the evidence or does not see all of it.
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from sesa_core.errors import JudgeUnavailable, ServiceError
from sesa_core.judge.base import Judge, ReplyState
from sesa_core.judge.compose import is_shown_whole
from sesa_core.judge.patience import Patience
from sesa_core.rollout.answers import AnswerJudge, Claim, Undecided, compare
from sesa_core.rollout.loop import Seat, Table, play
from sesa_core.rollout.validate import Rejection, names_target
from sesa_core.text.normalize import contains, matches
from sesa_core.types import Ending, Passage, Role, Target, Trajectory, TurnKind


@dataclass(frozen=True)
class Candidate:
    """A question that passed all earlier checks. `others`: the other rollouts of its batch, whose passages may serve as noise."""

    question: str
    target: Target
    trajectory: Trajectory
    others: Sequence[Trajectory] = ()


class Verifier(Protocol):
    def verify(self, candidates: Sequence[Candidate], step: int, rng: np.random.Generator) -> Sequence[Rejection | Undecided | None]:
        """One entry per candidate, None for a question that may be played. Raises a `ServiceError` if it can tell of none."""
        ...


class Resolution(Protocol):
    """What a closed-form world says of a question. `needed` are the (subject, value) pairs that a solver must read; `splits`
    are those of everything on the way to the answer."""

    @property
    def answer(self) -> str: ...
    @property
    def hops(self) -> int: ...
    @property
    def needed(self) -> Sequence[tuple[str, str]]: ...
    @property
    def splits(self) -> Set[str]: ...
    @property
    def ambiguous(self) -> bool: ...


class WorldVerifier:
    def __init__(self, resolve: Callable[[str], Resolution | None]) -> None:
        """`resolve` says what a question asks, None if it is not one that the world can answer."""
        self.resolve = resolve

    def verify(self, candidates: Sequence[Candidate], step: int, rng: np.random.Generator) -> list[Rejection | None]:
        return [self._check(c) for c in candidates]

    def _check(self, candidate: Candidate) -> Rejection | None:
        resolution = self.resolve(candidate.question)
        target = candidate.target
        if resolution is None or not matches(resolution.answer, (target.answer, *target.aliases)):
            return Rejection.WRONG_ANSWER
        if resolution.splits != {target.split}:
            return Rejection.FOREIGN_SPLIT
        if resolution.ambiguous:
            return Rejection.AMBIGUOUS
        if resolution.hops != target.hops:
            return Rejection.WRONG_HOPS
        shown = [f"{p.title}. {p.text}" for p in candidate.trajectory.evidence]
        supported = all(any(contains(text, subject) and contains(text, value) for text in shown) for subject, value in resolution.needed)
        return None if supported else Rejection.UNSUPPORTED


class PolicyVerifier:
    def __init__(self, table: Table, noise_passages: int, closed_book: bool = True, answer_judge: AnswerJudge | None = None) -> None:
        """`table`: greedy, without searches (`max_searches=0`). `closed_book`: also ask without evidence, to reject what is too easy.

        `answer_judge` decides about answers that equal no reference; None: they are wrong.
        """
        self.table, self.noise_passages, self.closed_book, self.answer_judge = table, noise_passages, closed_book, answer_judge

    def verify(self, candidates: Sequence[Candidate], step: int, rng: np.random.Generator) -> list[Rejection | Undecided | None]:
        """Not to be called from inside an event loop."""
        seats = [self._open_seat(c, i, rng) for i, c in enumerate(candidates)]
        if self.closed_book:
            seats += [self._seat(c, (), i, "closed") for i, c in enumerate(candidates)]
        played = play(seats, self.table, ("verify", step))
        with_evidence = played[: len(candidates)]
        without = [_said(t) for t in played[len(candidates) :]] or [None] * len(candidates)
        reached = _reached(candidates, [_said(t) for t in with_evidence], self.answer_judge)
        outcomes = [_of_the_answerer(t, r) for t, r in zip(with_evidence, reached, strict=True)]
        return _not_too_easy(candidates, outcomes, without, self.answer_judge)

    def _open_seat(self, candidate: Candidate, index: int, rng: np.random.Generator) -> Seat:
        """With all of the evidence, and with as much of the noise as leaves room for an answer."""
        transcript, settings = self.table.transcript, self.table.settings
        shown = list(with_noise(candidate, self.noise_passages, rng))
        noise = [passage for passage in shown if passage not in candidate.trajectory.evidence]
        while True:
            seat = self._seat(candidate, shown, index, "open")
            prompt = transcript.encode(transcript.prompt_text(seat.messages))
            if not noise or len(prompt) + settings.solver.max_new_tokens <= settings.max_context:
                return seat
            shown.remove(noise.pop())

    def _seat(self, candidate: Candidate, passages: Sequence[Passage], index: int, kind: str) -> Seat:
        messages = tuple(self.table.transcript.verify_messages(candidate.question, passages))
        return Seat(Role.SOLVER, f"{kind}/{candidate.target.target_id}", index, messages)


class JudgeVerifier:
    """The judge answers from the evidence among noise passages; what it answers rightly, it is asked again without any passage."""

    def __init__(
        self,
        judge: Judge | None,
        noise_passages: int,
        concurrency: int,
        give_up_after: int,
        closed_book: bool = True,
        answer_judge: AnswerJudge | None = None,
    ) -> None:
        """At most `concurrency` calls are in flight; after `give_up_after` in a row without an answer, no more are made of their kind.

        `judge` is None for a run that was opened for reading only: it can tell of none. `answer_judge` as for `PolicyVerifier`.
        """
        self.judge, self.noise_passages, self.closed_book, self.answer_judge = judge, noise_passages, closed_book, answer_judge
        self.concurrency, self.give_up_after = concurrency, give_up_after

    def verify(self, candidates: Sequence[Candidate], step: int, rng: np.random.Generator) -> list[Rejection | Undecided | None]:
        """Not to be called from inside an event loop. A call is not repeated: one that brings nothing leaves its question undecided."""
        if self.judge is None:
            raise JudgeUnavailable("the run was opened without a judge, which its questions are to be verified by")
        said = asyncio.run(self._ask_all(self.judge, [(c.question, with_noise(c, self.noise_passages, rng)) for c in candidates]))
        reached = _reached(candidates, said, self.answer_judge)
        outcomes = [_of_the_judge(c, s, r) for c, s, r in zip(candidates, said, reached, strict=True)]
        right = [c for c, outcome in zip(candidates, outcomes, strict=True) if outcome is None and self.closed_book]
        again = iter(asyncio.run(self._ask_all(self.judge, [(c.question, ()) for c in right])) if right else ())
        without = [next(again) if outcome is None and self.closed_book else None for outcome in outcomes]
        return _not_too_easy(candidates, outcomes, without, self.answer_judge)

    async def _ask_all(self, judge: Judge, asked: Sequence[tuple[str, Sequence[Passage]]]) -> list[str | Undecided | None]:
        """For each question the answer, or None: the judge's word that the passages support none."""
        patience = Patience(self.concurrency, self.give_up_after)

        async def ask(question: str, passages: Sequence[Passage]) -> str | Undecided | None:
            try:
                given = await patience.ask(partial(judge.answer, question, passages))
            except ServiceError as failure:
                return Undecided(str(failure))
            said = given.state in (ReplyState.OK, ReplyState.REFUSED)
            return given.answer if said else Undecided(f"the judge's reply is {given.state}: {given.reason}")

        return await asyncio.gather(*(ask(question, passages) for question, passages in asked))


def _of_the_answerer(reply: Trajectory, reached: bool | Undecided) -> Rejection | Undecided | None:
    if reply.ending is Ending.TRUNCATED:
        return Undecided("the evidence and an answer to it find no room in rollout.max_context")
    return None if reached is True else reached or Rejection.WRONG_ANSWER


def _of_the_judge(candidate: Candidate, said: str | Undecided | None, reached: bool | Undecided) -> Rejection | Undecided | None:
    if reached is True:
        return None
    if isinstance(reached, Undecided):
        return reached
    if not is_shown_whole(candidate.question, candidate.trajectory.evidence):
        return Undecided("the evidence is longer than what the judge is shown of it")
    return Rejection.UNSUPPORTED if said is None else Rejection.WRONG_ANSWER


def _not_too_easy(
    candidates: Sequence[Candidate],
    outcomes: Sequence[Rejection | Undecided | None],
    without: Sequence[str | Undecided | None],
    answer_judge: AnswerJudge | None,
) -> list[Rejection | Undecided | None]:
    """The outcomes, and of those that are valid so far: not if the answer given without evidence reaches the target too."""
    asked = [said if outcome is None else None for said, outcome in zip(without, outcomes, strict=True)]
    reached = _reached(candidates, asked, answer_judge)
    return [(Rejection.TOO_EASY if r is True else r or None) if o is None else o for o, r in zip(outcomes, reached, strict=True)]


def _reached(
    candidates: Sequence[Candidate], answers: Sequence[str | Undecided | None], answer_judge: AnswerJudge | None
) -> list[bool | Undecided]:
    """Whether each answer is its candidate's target, as rewards tell it: equal to a reference, else what the judge says of it."""
    compared = [
        said if isinstance(said, Undecided) else compare(said, c.question, (c.target.answer, *c.target.aliases))
        for c, said in zip(candidates, answers, strict=True)
    ]
    claims = [x for x in compared if isinstance(x, Claim)]
    verdicts = answer_judge.verdicts(claims) if answer_judge else dict.fromkeys(claims, False)
    return [verdicts[x] if isinstance(x, Claim) else x for x in compared]


def with_noise(candidate: Candidate, count: int, rng: np.random.Generator) -> tuple[Passage, ...]:
    """The candidate's evidence and up to `count` passages of the others that do not hold its target, shuffled."""
    own = candidate.trajectory.evidence
    known = {p.passage_id for p in own}
    noise = {p.passage_id: p for other in candidate.others for p in other.evidence if p.passage_id not in known}
    drawn = (noise[key] for key in rng.permutation(sorted(noise))) if noise and count else ()
    fit = (p for p in drawn if not names_target(f"{p.title} {p.text}", candidate.target))  # few are looked at, of thousands
    passages = [*own, *itertools.islice(fit, count)]
    return tuple(passages[i] for i in rng.permutation(len(passages)))


def _said(reply: Trajectory) -> str | None:
    """What an answerer's tag holds, or all of a whole reply without tags: it has nothing to write but its answer."""
    if reply.ending is Ending.TRUNCATED:
        return None
    if reply.final is not None or not reply.turns:
        return reply.final
    text = reply.turns[-1].text
    return text if reply.turns[-1].kind is TurnKind.MALFORMED and "<" not in text else None
