"""The three arms of an evaluation: the same weights with no cards, with the bank's, and with as many irrelevant ones."""

from collections.abc import Sequence

from sesa_core.bank.snapshot import BankSnapshot
from sesa_core.cards.render import Ranked
from sesa_core.config.models import BankSettings

ARMS = ("off", "on", "placebo")


def cards_for_arm(arm: str, questions: Sequence[str], snapshot: BankSnapshot | None, bank: BankSettings) -> list[tuple[Ranked, ...]]:
    """What each question is shown. `placebo` shows as many cards as `on` would, the least similar ones."""
    if arm not in ARMS:
        raise ValueError(f"arm {arm!r} is none of {', '.join(ARMS)}")
    if arm == "off" or snapshot is None or not bank.top_k:
        return [()] * len(questions)
    found = snapshot.retrieve(
        questions, top_k=bank.top_k, floor=bank.floor, utility_weight=bank.utility_weight, trigger_weight=bank.trigger_weight
    )
    if arm == "on":
        return [tuple(hits) for hits in found]
    return [tuple(hits) for hits in snapshot.placebo(questions, [len(hits) for hits in found])]
