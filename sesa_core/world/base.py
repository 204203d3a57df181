"""What a run asks of its world, whatever kind it is: passages, targets, held-out questions, and what it knows of them.

Invariant: a world does not change while it is in use; `fingerprint` names all that it holds, so that a run can tell whether it
goes on with what it began with. Edge case: a world that is not closed-form has no `resolve`, and knows no list of all names.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sesa_core.types import Target
from sesa_core.world.passages import Document
from sesa_core.world.questions import Resolution


@dataclass(frozen=True)
class HeldOutQuestion:
    """A question that measures a solver and that no proposer may ask. `hops` is None where nobody counted them; accuracy is
    also reported by `kind`, where there is one."""

    question: str
    reference_answers: tuple[str, ...]
    hops: int | None = None
    kind: str = ""


class TrainingWorld(Protocol):
    """A world to train in."""

    @property
    def fingerprint(self) -> str:
        """Parts of the form name-hash, joined by dots."""
        ...

    @property
    def index_name(self) -> str:
        """Names the passages alone: worlds with the same ones share a search index."""
        ...

    @property
    def documents(self) -> Iterable[Document]:
        """All passages; may be iterated again, and need not lie in memory."""
        ...

    @property
    def names(self) -> Collection[str]:
        """Every entity's name, as written; empty if the world does not know them all."""
        ...

    @property
    def resolve(self) -> Callable[[str], Resolution | None] | None:
        """What a question asks, None of a question that is none of this world's; None for a world that cannot tell."""
        ...

    def check(self) -> None:
        """Look through all of it, once before a run begins. Raises ConfigError for the first thing that is wrong."""
        ...

    def summary(self) -> str:
        """What it holds, in numbers."""
        ...

    def targets(self) -> Sequence[Target]:
        """Answers that a proposer may be asked to build questions for."""
        ...

    def evaluation_questions(self, split: str, count: int) -> Sequence[HeldOutQuestion]:
        """Always the same ones; a longer list starts with the shorter one. Raises ConfigError if there are not so many."""
        ...

    def held_out(self, count: int) -> Iterable[str]:
        """The questions of both splits that may be asked in evaluations of `count` questions, if not more."""
        ...
