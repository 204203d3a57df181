"""Whatever a judge replies about a failure, it ends as one card that breaks no rule, or as a reason.

Replies go over HTTP into the real client, and what it reads goes through the plan of a boundary, hundreds at a time. The short test
has hundreds of replies, the long one ten thousand; hypothesis makes others, and finds the smallest that breaks.
"""

import json
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sesa_core.bank.admission import Lexicon, injection, leak
from sesa_core.bank.plan import plan_boundary
from sesa_core.bank.state import BankState
from sesa_core.cards.schema import Origin, SkillCard, card_from_draft, card_from_row
from sesa_core.config.models import QueueSettings
from sesa_core.errors import JudgeUnavailable
from sesa_core.judge.base import Distillation, ReplyState, Usage
from sesa_core.judge.replies import open_envelope, parse_card
from sesa_core.rng import stream
from sesa_core.types import Failure
from tests.bank_support import MODEL, PROMPT, card, embedder, segment_commit
from tests.fuzz_support import (
    CASES,
    DISGUISES,
    EVALUATION,
    LEXICON,
    Case,
    Recipe,
    breaches,
    drawn,
    judged,
    lesson,
    planted,
    recipes,
    stands_in,
)
from tests.judge_support import completion

PER_PLAN = 250
LEAKS = {"answer_leak", "entity_leak", "evaluation_leak"}
STATES = {s.value for s in ReplyState if s is not ReplyState.OK}
EVERY_ENDING = {"admitted", "duplicate", "injection", "no_lesson", "unavailable"} | LEAKS | STATES
DIGITS = "9" * 5_000  # more than Python makes a number of
DEEP = (400, 900, 950, 970, 980, 985, 990, 995)  # around the depth at which Python gives up


def nasty_texts() -> Iterator[str]:
    """What has broken readers of replies, or could: time that grows with the square, depth, digits, halves of pairs, size."""
    good = json.dumps(lesson("anthem"))
    opened = good[:-1]
    yield from ("", " \n", "\x00", "\ud800", "null", "[]", "NaN", "<html>", "I'm sorry \x1b[2J\ud800", opened, f"{opened},", f"[{good}]")
    yield from ("*" * 100_000, "> " * 50_000, f"x{chr(10) * 99_000}y", "PATTERN:" * 12_000, f"PATTERN{' ' * 90_000}x", "<think>" * 14_000)
    yield from (f"PATTERN: a\nQUERIES:{';' * 90_000}", f"PATTERN: a\nQUERIES: {'b;' * 45_000}", "'" * 9_000, "\\" * 9_000, "x" * 1_000_000)
    yield from (
        f'{{"pattern": {DIGITS}}}',
        f'{opened}, "why": {DIGITS}}}',
        '{"pattern": 1e999}',
        '{"no_lesson": "\\ud800"}',
        "PATTERN: \x85",
    )
    yield from ('{"no_lesson": "\\u0000\\u001b[31m"}', '{"pattern": "\\udc00"}', json.dumps({"no_lesson": "x" * 90_000}))
    for n in DEEP:
        yield '{"card":' * n + good + "}" * n
        yield f'{opened}, "queries": [{"[" * n}{"]" * n}]}}'
        yield f'{opened}, "category": {"[" * n}{"]" * n}}}'


# -- what becomes of replies


def failures_for(bodies: Sequence[bytes]) -> list[Failure]:
    """One for each reply, of the cases in turn."""
    cases = [CASES[i % len(CASES)] for i in range(len(bodies))]
    return [replace(c.failure, failure_id=f"f{i:05}", problem_id=f"p{i:05}") for i, c in enumerate(cases)]


def distilled(bodies: Sequence[bytes], failures: Sequence[Failure]) -> list[Distillation | JudgeUnavailable]:
    """What the client makes of them."""
    return judged(bodies, lambda judge, i: judge.distill(failures[i]))


def read_here(body: dict, failure: Failure) -> Distillation:
    """What the client's reader makes of a completion, without the wire, which takes five times as long."""
    envelope = open_envelope(body)
    state, draft, reason = (envelope.state, None, envelope.reason) if envelope.state else parse_card(envelope.text)
    return Distillation(failure.failure_id, PROMPT, MODEL, state, draft, envelope.text, Usage(envelope.prompt_tokens), reason)


def assert_is_a_reason(text: str) -> None:
    """Something that a table holds and a terminal prints."""
    assert text.strip() and len(text) < 1000
    assert not [c for c in text if unicodedata.category(c) in ("Cc", "Cs")]


def assert_keeps_the_rules(admitted: SkillCard, case: Case, *, with_lexicon: bool) -> None:
    assert breaches(admitted, case, with_lexicon=with_lexicon) == [], admitted
    assert not any(stands_in(admitted.example_question, q) for q in EVALUATION)


def endings(told: Sequence[Distillation | JudgeUnavailable], failures: Sequence[Failure], *, with_lexicon: bool) -> Counter[str]:
    """How each of these replies ended in one boundary, after it was looked at."""
    commit = segment_commit(
        failures=failures,
        replies=[t for t in told if isinstance(t, Distillation)],
        failed_attempts={f.failure_id: 1 for f, t in zip(failures, told, strict=True) if isinstance(t, JudgeUnavailable)},
        queue=QueueSettings(capacity=len(failures)),
        lexicon=LEXICON if with_lexicon else (),
        evaluation_questions=EVALUATION,
    )
    plan = plan_boundary(BankState(None, "r"), commit, embedder=embedder())
    assert plan.plan_hash, "every byte of it can be written"
    cards = {row["source_problem_id"]: card_from_row(row) for row in plan.upserts}
    refused = {r["failure_id"]: r for r in plan.report.refused}
    rows = {row["failure_id"]: row for row in plan.failures}
    assert len(cards) == len(plan.report.added) and len(refused) == len(plan.report.refused)
    ended = Counter()
    for i, (failure, reply) in enumerate(zip(failures, told, strict=True)):
        row, admitted, refusal = rows[failure.failure_id], cards.get(failure.problem_id), refused.get(failure.failure_id)
        ended[ending(reply, row, admitted, refusal)] += 1
        if admitted is not None:
            assert_keeps_the_rules(admitted, CASES[i % len(CASES)], with_lexicon=with_lexicon)
    return ended


def ending(reply: Distillation | JudgeUnavailable, row: dict, admitted: SkillCard | None, refusal: dict | None) -> str:
    """The one way in which this reply ended: its card, the rule that refused it, its state, or none at all."""
    if isinstance(reply, JudgeUnavailable):
        assert (admitted, refusal, row["state"], row["attempts"]) == (None, None, "pending", 1)
        assert_is_a_reason(str(reply))
        return "unavailable"
    if reply.state is not ReplyState.OK:
        assert (admitted, refusal, reply.draft, row["state"], row["attempts"]) == (None, None, None, "pending", 1)
        assert_is_a_reason(row["reason"])
        return reply.state.value
    assert (admitted is None) != (refusal is None) and row["state"] == "consumed"
    assert_is_a_reason(row["reason"])
    return "admitted" if refusal is None else refusal["rule"]


def recipe(seed: int, i: int) -> Recipe:
    return drawn(stream(seed, "fuzz", i), CASES[i % len(CASES)])


NASTY = [json.dumps(completion(text)).encode() for text in nasty_texts()]


def test_each_of_five_hundred_replies_ends_as_a_card_that_keeps_the_rules_or_as_a_reason():
    bodies = NASTY + [recipe(1, i).raw for i in range(len(NASTY), 120)]
    more = [recipe(1, i).body for i in range(120, 500)]
    failures = failures_for([*bodies, *more])
    told = distilled(bodies, failures) + [read_here(b, f) for b, f in zip(more, failures[120:], strict=True)]
    ended = endings(told, failures, with_lexicon=False)
    assert ended.total() == 500
    assert set(ended) >= EVERY_ENDING, "the replies are of every kind"


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_each_of_ten_thousand_replies_ends_as_a_card_that_keeps_the_rules_or_as_a_reason():
    bodies, ended = NASTY + [recipe(2, i).raw for i in range(len(NASTY), 10_000)], Counter()
    for start in range(0, len(bodies), PER_PLAN):
        some = bodies[start : start + PER_PLAN]
        failures = failures_for(some)
        ended += endings(distilled(some, failures), failures, with_lexicon=start // PER_PLAN % 2 == 0)
    assert ended.total() == 10_000
    assert set(ended) >= EVERY_ENDING


@pytest.mark.parametrize("with_lexicon", [True, False])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.failure.question)
def test_what_no_card_may_hold_is_seen_in_every_disguise(case: Case, with_lexicon: bool):
    """By the admission, and by the judgement of these tests, which would be worth nothing if it were blind."""
    lexicon = Lexicon.of(LEXICON if with_lexicon else (), EVALUATION)
    known = {disguise(other) for other in case.others for disguise in DISGUISES.values()} if with_lexicon else set()
    for text in (text for texts in planted(case) for text in texts if text not in known):
        held = card("anthem", pattern=" ".join(f"It is {text} that is asked for.".split()))
        assert leak(held, case.failure, lexicon) or injection(held), text
        assert breaches(held, case, with_lexicon=with_lexicon), text


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(CASES).flatmap(lambda case: st.tuples(st.just(case), recipes(case))), st.booleans())
def test_no_recipe_makes_a_card_that_breaks_a_rule(made: tuple[Case, Recipe], with_lexicon: bool):
    """One reply at a time and without the plan, so that hypothesis can look for a smaller one."""
    case, spoiled = made
    reply = read_here(spoiled.body, case.failure)
    if reply.draft is None:
        assert_is_a_reason(reply.reason)
        return
    assert reply.state is ReplyState.OK
    made_of_it = card_from_draft(reply.draft, card_id="x", origin=Origin.DISTILLED, example_question=case.failure.question)
    lexicon = Lexicon.of(LEXICON if with_lexicon else (), EVALUATION)
    if leak(made_of_it, case.failure, lexicon) is None and injection(made_of_it) is None:
        assert_keeps_the_rules(made_of_it, case, with_lexicon=with_lexicon)
