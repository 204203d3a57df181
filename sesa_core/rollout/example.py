"""One game of either role that was played well, shown before a policy's own: small chat models call a tool only once they have seen it.

Owns the example's words. Invariant: nothing in it is a fact of any world, so it answers no question that is ever asked. It is
written as the profile writes games, in one assistant message, exactly as the policy's own game will stand in its context.
"""

from dataclasses import dataclass

from sesa_core.types import Passage, Role, Target

_COUNTRY = Passage("", "Freedonia", "Freedonia is a country of two provinces. Its capital is Fredville.")
_LAKE = Passage("", "Lake Tarn", "Lake Tarn is a lake in Freedonia, fed by glaciers.")

QUESTION = "Which city is the capital of the country in which Lake Tarn lies?"
TARGET = Target("example", "Fredville", 2)


@dataclass(frozen=True)
class WorkedExample:
    """Searches with what they found, and the final text in its tag."""

    searches: tuple[tuple[str, tuple[Passage, ...]], ...]
    final: str


EXAMPLES = {
    Role.SOLVER: WorkedExample((("Lake Tarn", (_LAKE,)), ("capital of Freedonia", (_COUNTRY,))), "<answer>Fredville</answer>"),
    Role.PROPOSER: WorkedExample((("Fredville", (_COUNTRY,)), ("Freedonia", (_LAKE, _COUNTRY))), f"<question>{QUESTION}</question>"),
}
