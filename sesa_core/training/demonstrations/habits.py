"""Which wrong habits the warm start leaves, and how strong: "mechanics sound, strategy open".

A habit is the MORE likely behaviour in its situation, the right one the less likely: greedy play is then wrong, while
sampling still shows the right way often enough for a policy gradient to turn the habit round. Not following an import partner
is the less likely one: training has few such links that stay inside the split, and as a habit it was unlearned for the
countries of training but, in one run of two, not for others.
"""

from dataclasses import dataclass

# Known relations that are looked for in one plausible but wrong section.
WRONG_SECTIONS = {
    "leader": "history",
    "regime": "history",
    "independence": "government",
    "currency": "trade",
    "top export": "economy",
    "main crop": "geography",
    "language": "culture",
    "religion": "culture",
    "symbol": "government",
}
STOPPING_KINDS = frozenset({"port", "site"})  # their country is taken for the answer
SKIPPED_LINK = "import partner"  # not followed: the first country's own section is opened


@dataclass(frozen=True)
class Habits:
    """Probability of each habit where it applies. All zero: clean demonstrations.

    `unknown` is the share of demonstrations about a relation or kind that nobody has told about, without a card.
    `crowd` and `crowd_without` are how many cards a prompt may hold when one of them tells, and when none does.
    `slips` are rare faults anywhere (a repeated search, an answer without one); `recover` is the share of wrong openings
    that are noticed and put right.
    """

    wrong_section: float = 0.0
    stop: float = 0.0
    skip_link: float = 0.0
    bare_namesake: float = 0.0
    slips: float = 0.0
    recover: float = 0.0
    unknown: float = 0.0
    proposer: float = 0.0
    crowd: tuple[int, ...] = (1, 1, 2, 3)
    crowd_without: tuple[int, ...] = (0, 0, 1, 2, 3)


CLEAN = Habits()
OPEN = Habits(
    wrong_section=0.75,
    stop=0.6,
    skip_link=0.4,
    bare_namesake=0.6,
    slips=0.1,
    recover=0.12,
    unknown=0.22,
    proposer=1.0,
    crowd=(1, 2, 2, 3),
    crowd_without=(0, 0, 1, 2, 2, 3),
)
