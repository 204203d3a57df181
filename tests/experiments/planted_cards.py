"""Planted cards: which of the cards that do harm leave, how soon, and which harmless ones leave with them.

Run it as `python -m tests.experiments.planted_cards --out tests/experiments/planted_cards.md` (`--help` tells the options). Cards
of known effect (`planted_world`) pass through the bank's own credit, eviction, tombstones and admission; nothing is copied.
"""

import argparse
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import log
from pathlib import Path

import numpy as np

from sesa_core.bank.candidates import admit
from sesa_core.bank.credit import CREDIT_RULES, apply_uses, credited
from sesa_core.bank.credit.uplift import harm_evidence
from sesa_core.bank.eviction import harmful, tombstone
from sesa_core.bank.failures import settle
from sesa_core.bank.holding import Holding
from sesa_core.bank.segment import SegmentCommit
from sesa_core.bank.state import BankState
from sesa_core.bank.tables import Tombstone
from sesa_core.cards.lesson import embedding_text
from sesa_core.config.models import BankSettings
from sesa_core.embed.wordllama import WordLlamaEmbedder
from sesa_core.judge.base import Distillation, ReplyState, Usage
from sesa_core.types import Failure, Passage, SegmentEvidence
from tests.experiments.planted_world import ATTRIBUTES, LEVELS, PER_LEVEL, STEPS_PER_SEGMENT, World, known_effect_evidence, lesson

SEGMENTS, WITHIN, WORDINGS = 12, 20, 3
UNKNOWN_KIND = "volcano"
LOOKS = (10, 20, 30, 40)  # uses
DELAYS = (1, 5, 10, 20, 40)  # steps between boundaries
DEFAULT, CRAMPED = "contrastive, credible uplift (our default)", "our default, cramped"


def rules(confidence: float) -> dict[str, BankSettings]:
    plain = {"withhold": "none", "eviction": "net_score"}
    return {
        "uniform, net score (published)": BankSettings(credit="uniform", **plain),
        "similarity, net score": BankSettings(credit="similarity", **plain),
        "contrastive, net score": BankSettings(credit="contrastive", eviction="net_score"),
        DEFAULT: BankSettings(eviction_confidence=confidence),
    }


@dataclass
class Fates:
    """What became of cards, one entry each: planted effect (None for mixed ones), uses at its eviction (None if it stayed)."""

    effects: list[float | None] = field(default_factory=list)
    left_at: list[int | None] = field(default_factory=list)
    offered: int = 0  # evicted lessons that came again, each in every wording
    refused: int = 0  # of these, by a tombstone
    readmitted: int = 0
    fresh: tuple[int, int] = (0, 0)  # lessons that the bank never had: offered with them, admitted

    def share(self, fits: Callable[[float | None], bool], within: int | None = None) -> float:
        chosen = [u for e, u in zip(self.effects, self.left_at, strict=True) if fits(e)]
        return sum(u is not None and (within is None or u <= within) for u in chosen) / len(chosen)

    def add(self, other: "Fates") -> None:
        self.effects += other.effects
        self.left_at += other.left_at
        self.offered, self.refused = self.offered + other.offered, self.refused + other.refused
        self.readmitted += other.readmitted
        self.fresh = (self.fresh[0] + other.fresh[0], self.fresh[1] + other.fresh[1])


@cache
def embedder() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


def run_rule(world: World, settings: BankSettings) -> Fates:
    """`SEGMENTS` segments with a boundary after each: credit, eviction, tombstones; at last every evicted lesson comes again."""
    cards = {p.card.card_id: p.card for p in world.planted}
    stones: list[Tombstone] = []
    for segment in range(SEGMENTS):
        present = np.array([i for i, name in enumerate(world.names) if name in cards])
        steps = range(segment * STEPS_PER_SEGMENT, (segment + 1) * STEPS_PER_SEGMENT)
        uses = [play.use for step in steps for play in world.play(present, step, settings.withhold)]
        cards |= apply_uses(cards, uses, (), CREDIT_RULES[settings.credit]).cards
        for card in harmful(Holding.of(cards.values()), settings):
            stones.append(tombstone(card, settings.eviction, segment + 1))
            del cards[card.card_id]
    left_at = {t.card.card_id: t.card.retrieved_count for t in stones}
    fates = Fates([None if p.mixed else p.effect for p in world.planted], [left_at.get(name) for name in world.names])
    offer_again(fates, world, cards, stones, settings)
    return fates


def offer_again(fates: Fates, world: World, cards: dict, stones: Sequence[Tombstone], settings: BankSettings) -> None:
    """Distil each evicted lesson again, from other problems and in every wording, and with them lessons that are new."""
    subjects = {p.card.card_id: p.subject for p in world.planted}
    again = [(f"again/{t.card.card_id}/{w}", subjects[t.card.card_id], w) for t in stones for w in range(WORDINGS)]
    fresh = [(f"fresh/{attribute}", (UNKNOWN_KIND, attribute), 0) for attribute in ATTRIBUTES]
    failures, replies = [], []
    for name, subject, wording in again + fresh:
        seen = (Passage("p", "Elsewhere", "A passage."),)
        failures.append(Failure(name, f"problem-{name}", 0, "which one is it?", ("none",), "x", 1, (), seen, ()))
        draft = lesson(subject, wording)
        replies.append(Distillation(name, "prompt", "model", ReplyState.OK, draft, "{}", Usage(0, 0, 0.0, 0.0), ""))
    kept = [c for _, c in sorted(cards.items())]
    vectors, buried = (embedder().embed_cards([embedding_text(c) for c in group]) for group in (kept, [s.card for s in stones]))
    state = BankState(None, "planted", Holding.of(kept, vectors), tuple(stones), buried)
    commit = SegmentCommit(segment=SEGMENTS, attempt=1, evidence=SegmentEvidence(SEGMENTS, 1), replies=replies, bank=settings)
    settled = settle({}, failures, replies, {}, commit.queue.model_copy(update={"capacity": len(failures)}), 0)
    result = admit(state, state.cards, [], settled, commit, embedder())
    admitted = [a.failure_id.startswith("again/") for a in result.admitted]
    fates.offered, fates.readmitted = len(again), sum(admitted)
    fates.refused = sum(r.rule == "tombstoned" and r.failure_id.startswith("again/") for r in result.refused)
    fates.fresh = (len(fresh), len(admitted) - sum(admitted))


@dataclass
class Trace:
    """A card that nobody evicts, use by use: the step, the natural logarithm of the evidence of harm for our rule, for a test
    that is told the effect, and for one that is told every chance; and its real effect."""

    effect: float | None
    steps: list[int] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    told_effect: list[float] = field(default_factory=list)
    told_all: list[float] = field(default_factory=list)
    real: list[float] = field(default_factory=list)


def observe(world: World) -> list[Trace]:
    """The same bank without any eviction."""
    cards = {p.card.card_id: p.card for p in world.planted}
    traces = {p.card.card_id: Trace(None if p.mixed else p.effect) for p in world.planted}
    everyone = np.arange(len(world.planted))
    for step in range(SEGMENTS * STEPS_PER_SEGMENT):
        for play in world.play(everyone, step, "half"):
            name = play.use.card_id
            cards[name] = credited(cards[name], play.use, CREDIT_RULES["contrastive"])
            trace = traces[name]
            effect = trace.effect or 0.0
            trace.steps.append(step)
            trace.ours.append(harm_evidence(cards[name]))
            trace.told_effect.append((trace.told_effect or [0.0])[-1] + known_effect_evidence(play.use, effect))
            trace.told_all.append((trace.told_all or [0.0])[-1] + play.truth)
            trace.real.append(play.effect)
    return list(traces.values())


def crossed(evidence: Sequence[float], within: int, wanted: float) -> bool:
    return max(evidence[:within], default=0.0) >= wanted


def left_after(trace: Trace, delay: int, wanted: float) -> int | None:
    """Uses that have been counted at the first boundary that evicts, boundaries coming every `delay` steps; None if it stays."""
    ends = [i for i in range(len(trace.steps)) if i + 1 == len(trace.steps) or trace.steps[i + 1] // delay > trace.steps[i] // delay]
    return next((i + 1 for i in ends if trace.ours[i] >= wanted and i + 1 >= 3), None)


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def summary(fates: dict[str, Fates]) -> str:
    rows = []
    for name, fate in fates.items():
        shares = [
            fate.share(lambda e: e is not None and e <= -0.4, WITHIN),
            fate.share(lambda e: e is not None and e < 0, None),
            fate.share(lambda e: e is not None and e >= 0),
            fate.share(lambda e: e == 0),
            fate.share(lambda e: e is None),
        ]
        again = f"{fate.readmitted} of {fate.offered} ({fate.refused}; {fate.fresh[1]} of {fate.fresh[0]})"
        rows.append([name, *map(percent, shares), again])
    head = ["rule", f"effect -.4 and worse: left within {WITHIN} uses", "any negative effect: left in the end"]
    head += ["**effect 0 or better: left**", "of these effect 0", "mixed ±.3, mean 0: left", "re-admitted"]
    return table(head, rows)


def by_effect(fates: dict[str, Fates]) -> str:
    rows = []
    for name, fate in fates.items():
        at = {e: f"{100 * fate.share(lambda x, e=e: x == e, WITHIN):.0f} / {100 * fate.share(lambda x, e=e: x == e):.0f}" for e in LEVELS}
        rows.append([name, *at.values()])
    return table(["rule", *(f"{e:+.1f}" for e in LEVELS)], rows)


def frontier(traces: Sequence[Trace], wanted: float) -> str:
    rows = []
    for effect in (e for e in LEVELS if e <= 0):
        mine = [t for t in traces if t.effect == effect]
        row = [f"{effect:+.1f}", f"{real_effect(traces, effect):+.2f}"]
        for uses in LOOKS:
            enough = [t for t in mine if len(t.steps) >= uses]
            shares = [np.mean([crossed(getattr(t, n), uses, wanted) for t in enough]) for n in ("ours", "told_effect", "told_all")]
            row.append(" / ".join(f"{100 * s:.0f}" for s in shares))
        rows.append(row)
    return table(["planted effect", "real mean effect", *(f"{u} uses" for u in LOOKS)], rows)


def delays(traces: Sequence[Trace], wanted: float) -> str:
    rows = []
    for delay in DELAYS:
        row = [str(delay)]
        for effect in (-0.5, -0.4, -0.3, -0.2):
            left = [left_after(t, delay, wanted) for t in traces if t.effect == effect]
            gone = [u for u in left if u is not None]
            within = sum(u <= WITHIN for u in gone) / len(left)
            row.append(f"{100 * within:.0f} %, {np.median(gone):.0f} uses")
        rows.append(row)
    return table(["steps between boundaries", *(f"{e:+.1f}" for e in (-0.5, -0.4, -0.3, -0.2))], rows)


def confidences(traces: Sequence[Trace]) -> str:
    rows = []
    for confidence in (0.9, 0.95, 0.96, 0.97, 0.98, 0.99):
        left = [(t.effect, left_after(t, STEPS_PER_SEGMENT, -log(1 - confidence))) for t in traces]
        groups = (
            [u is not None and u <= WITHIN for e, u in left if e is not None and e <= -0.4],
            [u is not None and u <= WITHIN for e, u in left if e == -0.3],
            *([u is not None for e, u in left if e is not None and e >= 0], [u is not None for e, u in left if e == 0]),
            [u is not None for e, u in left if e is None],
        )
        rows.append([f"{confidence}", *(percent(float(np.mean(g))) for g in groups)])
    head = ["confidence", f"effect -.4 and worse: within {WITHIN} uses", f"effect -.3: within {WITHIN} uses"]
    return table([*head, "effect 0 or better: in the end", "of these effect 0", "mixed ±.3, mean 0"], rows)


TEXT = """# Planted cards

Written by `python -m tests.experiments.planted_cards --seeds {seeds} --out tests/experiments/planted_cards.md`; do not edit.

{cards} cards in a bank: {per_level} of every effect from -.5 to +.5, and {per_level} mixed ones that help by .3 at half of the problems
and hurt by .3 at the others. {seeds} seeds from {first}; {segments} segments of ten steps, about {uses:.0f} uses per card. A problem shows
three of the cards that are still there, at random; effects add up within [.02, .98]; outcomes are 0 or 1, in groups of eight. Uses reach
the bank at the boundary after every tenth step. Credit, eviction, tombstones and admission are the bank's own code. The default's
confidence, {confidence}, was chosen on seeds from 100 on.

## What leaves

{summary}

"In the end": at any of the {segments} boundaries. "Cramped": difficulty is drawn from .3 to .7 without regard to the cards, so that
chances often meet their bounds and a card of -.4 really does {cramped:+.2f} (else {roomy:+.2f}). Re-admitted: at the end every evicted
lesson is distilled again from other problems: word for word, in other sentences, and in other sentences with other triggers and
searches; in brackets, how many of these a tombstone refused, and how many lessons that the bank never had were admitted beside them.

## By effect: % that left within {within} uses / in the end

{by_effect}

## The frontier: % recognised as harmful, looked at after every use

Ours / a test that is told the card's effect and compares as we do / a test that is told every rollout's chance with and without the
card. With a card that changes nothing each errs at most {error:.0f} times in a hundred, for ever (the other two are Wald's
sequential tests). The third is the statistical limit; the second says how much of the distance is the price of having to compare.

{frontier}

## The choice of the confidence: % that left, nobody else leaving

{confidences}

## What the delay costs: % that left within {within} uses, and the median of uses counted when a card left

{delays}
"""


def early_effects(world: World, planted: float) -> list[float]:
    """What the cards of that planted effect really do at the problems of the first segment."""
    subjects = {name for name, p in zip(world.names, world.planted, strict=True) if p.effect == planted}
    plays = [play for step in range(STEPS_PER_SEGMENT) for play in world.play(np.arange(len(world.names)), step, "half")]
    return [play.effect for play in plays if play.use.card_id in subjects]


def real_effect(traces: Sequence[Trace], planted: float) -> float:
    return float(np.mean([r for t in traces if t.effect == planted for r in t.real]))


def report(chosen: argparse.Namespace) -> str:
    fates: dict[str, Fates] = {name: Fates() for name in (*rules(chosen.confidence), CRAMPED)}
    traces: list[Trace] = []
    cramped: list[float] = []
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        world, tight = World(seed), World(seed, cramped=True)
        for name, settings in rules(chosen.confidence).items():
            fates[name].add(run_rule(world, settings))
        fates[CRAMPED].add(run_rule(tight, rules(chosen.confidence)[DEFAULT]))
        cramped += early_effects(tight, -0.4)
        traces += observe(world)
    wanted = -log(1 - chosen.confidence)
    return TEXT.format(
        seeds=chosen.seeds,
        first=chosen.first,
        confidence=chosen.confidence,
        error=100 * (1 - chosen.confidence),
        cards=PER_LEVEL * (len(LEVELS) + 1),
        per_level=PER_LEVEL,
        segments=SEGMENTS,
        uses=np.mean([len(t.steps) for t in traces]),
        within=WITHIN,
        cramped=np.mean(cramped),
        roomy=real_effect(traces, -0.4),
        summary=summary(fates),
        by_effect=by_effect(fates),
        frontier=frontier(traces, wanted),
        confidences=confidences(traces),
        delays=delays(traces, wanted),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--confidence", type=float, default=BankSettings().eviction_confidence, help="of the default's eviction")
    parser.add_argument("--out", type=Path, help="write the report into this file as well")
    chosen = parser.parse_args()
    logging.disable(logging.INFO)  # the gate's library tells much
    text = report(chosen)
    print(text)
    if chosen.out:
        chosen.out.write_text(text)


if __name__ == "__main__":
    main()
