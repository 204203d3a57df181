"""The world of real facts, as a run asks for it: closed-form, so that it resolves questions and knows every name."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from sesa_core.types import Target
from sesa_core.world.base import HeldOutQuestion
from sesa_core.world.load import World, load_world
from sesa_core.world.passages import Document
from sesa_core.world.questions import Resolution, resolve
from sesa_core.world.sampling import evaluation_questions, evaluation_questions_up_to


class EmbeddedWorld:
    """A `World` to train in. Its splits keep apart what is trained on, chosen by and measured."""

    def __init__(self, world: World) -> None:
        self.facts = world

    @classmethod
    def load(cls, folder: Path | None) -> "EmbeddedWorld":
        """The shipped world, or one built by `sesa world build`. Raises WorldError if a file is missing or damaged."""
        return cls(load_world(folder))

    @property
    def fingerprint(self) -> str:
        return f"world-{self.facts.fingerprint}"

    @property
    def index_name(self) -> str:
        return self.facts.fingerprint

    @property
    def documents(self) -> tuple[Document, ...]:
        return self.facts.documents

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.facts.countries, *self.facts.entities_by_name)

    @property
    def resolve(self) -> Callable[[str], Resolution | None]:
        return partial(resolve, self.facts)

    def check(self) -> None:
        """Nothing is left to be found: its manifest was compared when it was loaded."""

    def summary(self) -> str:
        return f"{len(self.facts.documents)} passages, {len(self.facts.entities)} entities, {len(self.facts.countries)} countries"

    def targets(self) -> list[Target]:
        return self.facts.targets("train")

    def evaluation_questions(self, split: str, count: int) -> list[HeldOutQuestion]:
        return [
            HeldOutQuestion(q.text, (q.answer, *q.resolution.aliases), q.resolution.hops, "held_out" if q.held_out else "shown")
            for q in evaluation_questions(self.facts, split, count)
        ]

    def held_out(self, count: int) -> Iterator[str]:
        return (q.text for split in ("dev", "test") for q in evaluation_questions_up_to(self.facts, split, count))
