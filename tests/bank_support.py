"""What the bank's tests share: one embedder, and short ways to write cards, failures, replies and evidence."""

from collections.abc import Sequence
from functools import cache

from sesa_core.bank.segment import SegmentCommit
from sesa_core.cards.schema import Origin, SkillCard
from sesa_core.config.models import BankSettings, QueueSettings
from sesa_core.embed.wordllama import WordLlamaEmbedder
from sesa_core.judge.base import CardDraft, Distillation, ReplyState, Usage
from sesa_core.types import CardUse, Failure, Passage, SegmentEvidence, ShownCard, StepEvidence

PROMPT, MODEL = "prompt-1", "judge-1"
PUBLISHED = BankSettings(credit="uniform", eviction="net_score")  # a few uses decide, so tests stay short
SECTION = {"anthem": "culture", "currency": "economy", "religion": "society", "climate": "geography", "calling code": "network"}


@cache
def embedder() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


def draft(relation: str, *, section: str = "", **changes) -> CardDraft:
    """The lesson that a country's `relation` stands in one of its sections."""
    section = section or SECTION[relation]
    fields = {
        "category": "attribute_lookup",
        "pattern": f"The question asks for the {relation} of a country.",
        "common_confusion": f"The {relation} is looked for on the page that comes first.",
        "key_distinction": f"For the {relation}, search the country's name with the word {section}.",
        "trigger_keywords": (relation,),
        "queries": (f"{{country}} {section}",),
    }
    return CardDraft(**(fields | changes))


def card(relation: str, *, card_id: str = "", origin: Origin = Origin.DISTILLED, section: str = "", **fields) -> SkillCard:
    content = draft(relation, section=section)
    names = ("category", "pattern", "common_confusion", "key_distinction", "trigger_keywords", "queries")
    given = {n: getattr(content, n) for n in names} | {"embedder": embedder().name} | fields
    return SkillCard(card_id=card_id or f"card-{relation.replace(' ', '-')}", origin=origin, **given)


def question(relation: str) -> str:
    return f"What is the {relation} of the country of the city Cordoba in Europe?"


def failure(name: str, relation: str = "anthem", **changes) -> Failure:
    fields = {
        "failure_id": name,
        "problem_id": f"problem-{name}",
        "step": 1,
        "question": question(relation),
        "reference_answers": ("Marcha Real",),
        "answer": "Spain",
        "hops": 2,
        "queries": ("Cordoba", "Spain"),
        "evidence": (Passage("p1", "Cordoba", "Cordoba is a city. country: Spain."),),
        "problem_evidence": (Passage("p2", "Spain culture", "anthem: Marcha Real."),),
    }
    return Failure(**(fields | changes))


def shown(card_id: str) -> ShownCard:
    return ShownCard(card_id, 0.5, f"[S1] {card_id}")


def reply(failure_id: str, content: CardDraft | None, state: ReplyState = ReplyState.OK, reason: str = "") -> Distillation:
    return Distillation(failure_id, PROMPT, MODEL, state, content, "{}", Usage(10, 5, 0.0, 0.1), reason)


def use(
    card_id: str,
    problem: str,
    rewards: Sequence[float],
    *,
    step: int = 1,
    without: Sequence[float] = (),
    substantive: bool = True,
    similarity: float = 0.5,
) -> CardUse:
    event_id = f"use/{step}/{problem}/{card_id}"
    return CardUse(event_id, card_id, problem, step, 3, similarity, tuple(rewards), tuple(without), substantive)


def segment_commit(
    segment: int = 1,
    *,
    uses: Sequence[CardUse] = (),
    failures: Sequence[Failure] = (),
    replies: Sequence[Distillation] = (),
    attempt: int = 1,
    bank: BankSettings | None = None,
    queue: QueueSettings | None = None,
    **fields,
) -> SegmentCommit:
    evidence = SegmentEvidence(segment, attempt, (StepEvidence(1, tuple(uses), tuple(failures)),))
    given = {"bank": bank or PUBLISHED, "queue": queue or QueueSettings(), "config_hash": "abc"} | fields
    return SegmentCommit(segment=segment, attempt=attempt, evidence=evidence, replies=tuple(replies), **given)
