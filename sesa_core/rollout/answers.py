"""Answers that equal no reference, and what the judge says of them: fetched here, so that rewards stay pure.

Invariant: only an answer on which something hinges is asked about, and what was decided is not asked again: the same words cannot
be right when a question is verified and wrong when it is rewarded; whatever the judge does not clearly say
leaves it `Undecided`, which is neither right nor wrong. Edge cases: an answer that is too long to be shown to the judge whole is
wrong without being asked about, since what is cut off might take back what is shown; a judge that leaves `give_up_after` calls
in a row without an answer is asked nothing more in the same batch, so that one that hangs does not hold up a step for hours.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from sesa_core.errors import ServiceError
from sesa_core.judge.base import Judge
from sesa_core.judge.compose import MAX_VALUE_CHARS
from sesa_core.judge.patience import Patience
from sesa_core.rewards.solver import counted_answer
from sesa_core.text.normalize import matches
from sesa_core.types import Trajectory


@dataclass(frozen=True)
class Undecided:
    """Nobody could tell: what hinges on it is dropped, neither right nor wrong, neither valid nor rejected."""

    cause: str


class Claim(NamedTuple):
    """An answer that equals none of the references, and may still mean the same as one of them."""

    question: str
    reference_answers: tuple[str, ...]
    answer: str


Verdicts = Mapping[Claim, bool | Undecided]


def compare(answer: str | None, question: str, reference_answers: tuple[str, ...]) -> bool | Claim:
    """Whether an answer is right, where that is known without the judge; else what the judge is to be asked."""
    if answer is None or not answer.strip():
        return False
    if matches(answer, reference_answers):
        return True
    return False if len(answer) > MAX_VALUE_CHARS else Claim(question, reference_answers, answer)


def open_claim(trajectory: Trajectory, question: str, reference_answers: tuple[str, ...], max_answer_tags: int = 1) -> Claim | None:
    """What the judge must be asked before this rollout can be rewarded; None where its reward is known. Not for a dropped one."""
    compared = compare(counted_answer(trajectory, max_answer_tags), question, reference_answers)
    return compared if isinstance(compared, Claim) else None


_REMEMBERED = 100_000  # decided answers, the latest; a step of the largest preset has 1,280


class AnswerJudge:
    """Asks the judge whether answers are right, at most `concurrency` calls at a time. A call is not repeated.

    Remembers what was decided, as long as the process lives.
    """

    def __init__(self, judge: Judge | None, concurrency: int, give_up_after: int) -> None:
        """`judge` is None for a run that was opened without one: it can tell of no answer."""
        self.judge, self.concurrency, self.give_up_after = judge, concurrency, give_up_after
        self._decided: dict[Claim, bool] = {}

    def verdicts(self, claims: Iterable[Claim]) -> dict[Claim, bool | Undecided]:
        """One entry for each distinct claim, in order. Raises nothing. Not to be called from inside an event loop."""
        distinct = list(dict.fromkeys(claims))
        if self.judge is None:
            return dict.fromkeys(distinct, Undecided("the run was opened without a judge"))
        unknown = [claim for claim in distinct if claim not in self._decided]
        said = dict(zip(unknown, asyncio.run(self._ask_all(unknown, self.judge)), strict=True)) if unknown else {}
        verdicts = {claim: said[claim] if claim in said else self._decided[claim] for claim in distinct}
        self._decided |= {claim: verdict for claim, verdict in said.items() if isinstance(verdict, bool)}
        for oldest in list(self._decided)[:-_REMEMBERED]:
            del self._decided[oldest]
        return verdicts

    async def _ask_all(self, claims: Sequence[Claim], judge: Judge) -> list[bool | Undecided]:
        patience = Patience(self.concurrency, self.give_up_after)
        return await asyncio.gather(*(self._ask(claim, judge, patience) for claim in claims))

    @staticmethod
    async def _ask(claim: Claim, judge: Judge, patience: Patience) -> bool | Undecided:
        try:
            verdict = await patience.ask(partial(judge.verdict, *claim))
        except ServiceError as failure:
            return Undecided(str(failure))
        if verdict.score is None:
            return Undecided(f"the judge's reply is {verdict.state}: {verdict.reason}")
        return verdict.score > 0.5
