import asyncio
import json
from dataclasses import dataclass, replace
from functools import partial

import pytest
from fastapi import FastAPI, Request

from sesa_core.config.models import ValidationSettings
from sesa_core.errors import JudgeUnavailable, SearchUnavailable
from sesa_core.judge.server import running_server
from sesa_core.rng import stream
from sesa_core.rollout.answers import AnswerJudge, Undecided
from sesa_core.rollout.proposer import propose, validate
from sesa_core.rollout.validate import Rejection
from sesa_core.rollout.verify import Candidate, JudgeVerifier, PolicyVerifier, WorldVerifier, with_noise
from sesa_core.types import Ending, Passage, Role, Target, Trajectory, Turn, TurnKind
from sesa_core.world.load import load_world
from sesa_core.world.questions import resolve
from tests.core.rollout.test_loop import table
from tests.judge_support import completion, judge_at, serving

TARGET = Target("t1", "franc", 1, relation="currency")
EVIDENCE = (Passage("1", "Chad economy", "currency: franc."),)
OTHER_SECTION = (Passage("2", "Chad culture", "anthem: La Tchadienne."),)
OTHER_VALUE = (Passage("3", "Chad economy", "currency: dinar."),)


@dataclass(frozen=True)
class Answer:
    answer: str = "franc"
    hops: int = 1
    needed: tuple[tuple[str, str], ...] = (("Chad", "franc"),)
    ambiguous: bool = False
    splits: frozenset[str] = frozenset({"train"})


def candidate(evidence=EVIDENCE, others=()) -> Candidate:
    turns = (Turn(TurnKind.SEARCH, "q", evidence), Turn(TurnKind.QUESTION, "What is the currency of Chad?"))
    run = Trajectory(Role.PROPOSER, "t1", 0, "", (1,), (2,), (1,), (0.0,), turns, Ending.FINISHED)
    return Candidate("What is the currency of Chad?", TARGET, run, [c.trajectory for c in others])


def verdict(answer: Answer | None, evidence=EVIDENCE) -> Rejection | None:
    return WorldVerifier(lambda question: answer).verify([candidate(evidence)], 1, stream(0))[0]


def test_the_world_accepts_what_it_can_resolve_and_the_evidence_supports():
    assert verdict(Answer()) is None


def test_the_world_rejects_with_a_reason():
    assert verdict(None) is Rejection.WRONG_ANSWER
    assert verdict(replace(Answer(), answer="dinar")) is Rejection.WRONG_ANSWER
    assert verdict(replace(Answer(), ambiguous=True)) is Rejection.AMBIGUOUS
    assert verdict(replace(Answer(), hops=2)) is Rejection.WRONG_HOPS
    assert verdict(Answer(), evidence=(Passage("2", "Chad trade", "oil."),)) is Rejection.UNSUPPORTED


def test_a_question_about_another_split_is_rejected_though_its_answer_is_the_target():
    for splits in ({"test"}, {"train", "dev"}, set()):
        assert verdict(replace(Answer(), splits=frozenset(splits))) is Rejection.FOREIGN_SPLIT
    assert verdict(replace(Answer(), splits=frozenset({"test"}), answer="dinar")) is Rejection.WRONG_ANSWER


def test_in_the_embedded_world_no_test_country_with_the_same_value_is_asked_about():
    """The franc of a test country, for the target franc of a training country."""
    world = load_world()
    by_split = {s: {world.countries[c].facts.get("currency"): c for c in world.countries_by_split[s]} for s in ("train", "test")}
    shared = sorted((by_split["train"].keys() & by_split["test"].keys()) - {None})
    assert shared
    currency, (own, foreign) = shared[0], (by_split[s][shared[0]] for s in ("train", "test"))
    target = Target("t", currency, 1, relation="currency", split="train")
    evidence = tuple(Passage(c, f"{c} economy", f"currency: {currency}.") for c in (own, foreign))
    run = candidate(evidence).trajectory
    asked = [Candidate(f"What is the currency of {c}?", target, run) for c in (own, foreign)]
    assert WorldVerifier(partial(resolve, world)).verify(asked, 1, stream(0)) == [None, Rejection.FOREIGN_SPLIT]


def answerer(with_evidence: str, without: str, **settings):
    def script(prompt: str, seed: int) -> str:
        return f"<answer>{with_evidence if 'currency: franc' in prompt else without}</answer>"

    return PolicyVerifier(replace(table(script), greedy=True, max_searches=0), noise_passages=4, **settings)


def test_the_answerer_must_need_the_evidence():
    other = candidate((Passage("9", "Mali economy", "currency: none."), Passage("8", "Togo", "its franc")))
    assert answerer("franc", "dinar").verify([candidate(others=[other]), other], 1, stream(0))[0] is None
    assert answerer("franc", "franc").verify([candidate()], 1, stream(0)) == [Rejection.TOO_EASY]
    assert answerer("dinar", "dinar").verify([candidate()], 1, stream(0)) == [Rejection.WRONG_ANSWER]


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [("Franc.", None), ("the franc, I think", Rejection.WRONG_ANSWER), ("<question>franc</question>", Rejection.WRONG_ANSWER)],
)
def test_a_reply_without_tags_is_an_answer(reply, verdict):
    verifier = PolicyVerifier(replace(table(lambda prompt, seed: reply), greedy=True, max_searches=0), noise_passages=4, closed_book=False)
    assert verifier.verify([candidate()], 1, stream(0)) == [verdict]


def test_an_answerer_without_room_for_the_evidence_cannot_tell():
    verifier = answerer("franc", "dinar")
    size = len(
        verifier.table.transcript.encode(verifier.table.transcript.prompt_text(verifier._seat(candidate(), EVIDENCE, 0, "open").messages))
    )
    verifier.table = replace(verifier.table, settings=verifier.table.settings.model_copy(update={"max_context": size}))
    (undecided,) = verifier.verify([candidate()], 1, stream(0))
    assert isinstance(undecided, Undecided) and "rollout.max_context" in undecided.cause


def test_as_much_noise_is_shown_as_leaves_room_for_an_answer():
    prompts = []
    game = table(lambda prompt, seed: prompts.append(prompt) or "<answer>franc</answer>")
    verifier = PolicyVerifier(replace(game, greedy=True, max_searches=0), noise_passages=2, closed_book=False)
    noise = candidate(tuple(Passage(key, "Mali economy", "gold.") for key in "89"))
    for fit in (0, 1, 2):
        seat = verifier._seat(candidate(), (*EVIDENCE, *noise.trajectory.evidence[:fit]), 0, "open")
        tokens = len(game.transcript.encode(game.transcript.prompt_text(seat.messages))) + game.settings.solver.max_new_tokens
        verifier.table = replace(verifier.table, settings=game.settings.model_copy(update={"max_context": tokens}))
        assert verifier.verify([replace(candidate(), others=[noise.trajectory])], 1, stream(0)) == [None]
        assert prompts[-1].count("gold") == fit


@pytest.mark.parametrize(
    ("replies", "by_match", "by_judge"),
    [
        (("the franc of Chad", "dinar"), Rejection.WRONG_ANSWER, None),
        (("franc", "the franc of Chad"), None, Rejection.TOO_EASY),
        (("the dinar of Chad", "franc"), Rejection.WRONG_ANSWER, Rejection.WRONG_ANSWER),
    ],
)
def test_an_answer_in_other_words_reaches_the_target_where_the_judge_decides_about_answers(replies, by_match, by_judge):
    assert answerer(*replies).verify([candidate()], 1, stream(0)) == [by_match]
    with running_server() as url:
        judged = answerer(*replies, answer_judge=AnswerJudge(judge_at(url), 8, 10))
        assert judged.verify([candidate()], 1, stream(0)) == [by_judge]


def test_an_answer_that_nobody_judged_decides_nothing():
    """Neither the one that the evidence led to nor, after that was right, the one without evidence."""
    for faults, replies in (("error*", ("the franc of Chad", "dinar")), ("ok,error*", ("the franc of Chad", "the franc of Mali"))):
        with running_server(faults=faults) as url:
            judged = answerer(*replies, answer_judge=AnswerJudge(judge_at(url), 8, 10))
            (undecided,) = judged.verify([candidate()], 1, stream(0))
            assert isinstance(undecided, Undecided) and undecided.cause
            needs_no_call = answerer("franc", "", answer_judge=judged.answer_judge)
            assert needs_no_call.verify([candidate()], 1, stream(0)) == [None]


def test_without_the_closed_book_nobody_is_asked_what_it_knows_by_heart():
    verifier = answerer("franc", "franc", closed_book=False)
    assert verifier.verify([candidate(), candidate(OTHER_VALUE)], 1, stream(0)) == [None, None]
    assert len(verifier.table.engine.sampled) == 2
    assert answerer("dinar", "franc", closed_book=False).verify([candidate()], 1, stream(0)) == [Rejection.WRONG_ANSWER]


def test_noise_never_holds_the_target_under_any_of_its_names():
    texts = {"8": "its franc", "7": "paid in CFA", "6": "the Ｆｒａｎｃ", "9": "gold.", "5": "its francs"}
    other = candidate(tuple(Passage(i, "Togo", text) for i, text in texts.items()))
    asked = replace(candidate(others=[other]), target=replace(TARGET, aliases=("CFA",)))
    assert {p.passage_id for p in with_noise(asked, 4, stream(0))} == {"1", "9", "5"}


def test_of_more_noise_than_is_wanted_some_is_drawn_and_the_evidence_is_always_there():
    other = candidate(tuple(Passage(str(i), "Mali", "gold.") for i in range(10, 30)))
    shown = [{p.passage_id for p in with_noise(candidate(others=[other]), 4, stream(seed))} for seed in range(20)]
    assert all(len(ids) == 5 and "1" in ids for ids in shown)
    assert len(set.union(*shown)) > 15, "not always the same four"
    assert with_noise(candidate(others=[other]), 0, stream(0)) == EVIDENCE
    first = {with_noise(candidate(others=[other]), 4, stream(seed))[0].passage_id == "1" for seed in range(20)}
    assert first == {True, False}, "the evidence has no fixed place"


def test_noise_comes_of_every_other_rollout_of_the_batch_also_of_rejected_ones():
    """The second target's question is never written; what its rollout was shown is real all the same."""

    class Keeps:
        def verify(self, candidates, step, rng):
            self.asked = candidates
            return [None] * len(candidates)

    def script(prompt: str, seed: int) -> str:
        if "economy. currency: franc" not in prompt:
            return "<search>Chad economy</search>"
        return "<answer>none</answer>" if "dinar" in prompt else "<question>What is the currency of Chad?</question>"

    keeps = Keeps()
    proposals = propose([TARGET, Target("t2", "dinar", 1, relation="currency")], 1, table(script), step=1)
    validate(proposals, ValidationSettings(), keeps, [], frozenset(), 1, stream(0))
    (asked,) = keeps.asked
    assert asked.trajectory is proposals[0].trajectory
    assert list(asked.others) == [proposals[1].trajectory] and proposals[1].trajectory.evidence == EVIDENCE


def proposer_script(prompt: str, seed: int) -> str:
    return "<question>What is the currency of Chad?</question>" if "economy. currency: franc" in prompt else "<search>Chad economy</search>"


def test_siblings_share_a_problem_and_rejections_are_exclusive():
    proposals = propose([TARGET, Target("t2", "dinar", 1, relation="currency")], 2, table(proposer_script), step=5)
    checked = validate(proposals, ValidationSettings(), WorldVerifier(lambda q: Answer()), [], frozenset(), 5, stream(0))
    first, second = checked[:2], checked[2:]
    assert first[0].problem == first[1].problem and first[0].problem.evidence == EVIDENCE and first[0].problem.step == 5
    assert [p.rejection for p in second] == [Rejection.WRONG_ANSWER] * 2
    assert all((p.problem is None) != (p.rejection is None) for p in checked)


def test_an_outage_of_the_verifier_drops_and_never_rejects():
    class Down:
        def verify(self, candidates, step, rng):
            raise SearchUnavailable("no answer")

    proposals = propose([TARGET], 2, table(proposer_script), step=1)
    checked = validate(proposals, ValidationSettings(), Down(), [], frozenset(), 1, stream(0))
    assert all(p.problem is None and p.rejection is None and "no answer" in p.dropped for p in checked)


# -- the judge as the answerer


def by_judge(url: str, *candidates: Candidate, noise: int = 4, concurrency: int = 8, give_up_after: int = 10, closed_book: bool = True):
    each = [replace(c, others=[o.trajectory for o in candidates if o is not c]) for c in candidates]
    return JudgeVerifier(judge_at(url), noise, concurrency, give_up_after, closed_book).verify(each, 1, stream(0))


def test_the_judge_answers_from_the_evidence_or_rejects():
    with running_server() as url:
        outcomes = by_judge(url, candidate(), candidate(OTHER_SECTION), candidate(OTHER_VALUE), noise=0)
    assert outcomes == [None, Rejection.UNSUPPORTED, Rejection.WRONG_ANSWER]


def test_what_the_judge_was_not_shown_whole_is_no_reason_to_reject():
    far = (Passage("1", "Chad economy", "word " * 500 + "currency: franc."),)
    with running_server() as url:
        (cut,) = by_judge(url, candidate(far), noise=0)
        (whole,) = by_judge(url, candidate((replace(far[0], text="word " * 200),)), noise=0)
    assert isinstance(cut, Undecided) and "longer than" in cut.cause
    assert whole is Rejection.UNSUPPORTED


def test_a_question_of_which_the_passages_hold_two_answers_is_not_played():
    with running_server() as url:
        assert by_judge(url, candidate((*EVIDENCE, *OTHER_VALUE))) == [Rejection.UNSUPPORTED]


class Asked:
    """A judge that answers by `script(question, titles of the passages) -> content` and keeps what it was shown."""

    def __init__(self, script) -> None:
        self.shown, self.in_flight, self.most = [], 0, 0
        self.script, self.app = script, FastAPI()
        self.app.post("/v1/chat/completions", response_model=None)(self.reply)

    async def reply(self, request: Request) -> dict:
        self.in_flight += 1
        self.most = max(self.most, self.in_flight)
        material = json.loads(
            (await request.json())["messages"][1]["content"].removeprefix("BEGIN MATERIAL\n").removesuffix("\nEND MATERIAL")
        )
        titles = [p["title"] for p in material["passages"]]
        self.shown.append(titles)
        await asyncio.sleep(0.02)  # long enough for as many calls as may to be in flight
        self.in_flight -= 1
        return completion(self.script(material["question"], titles))


def test_what_the_judge_answers_without_evidence_is_too_easy():
    judge = Asked(lambda question, titles: '{"answer": "Franc", "no_answer": ""}')
    with serving(judge.app) as url:
        assert by_judge(url, candidate()) == [Rejection.TOO_EASY]
        assert by_judge(url, candidate(), closed_book=False) == [None]
    assert judge.shown == [["Chad economy"], [], ["Chad economy"]]


def test_the_judge_that_answers_is_compared_by_the_judge_too_where_it_decides_about_answers():
    judge = Asked(lambda question, titles: "ANSWER: the franc of Chad" if titles else "ANSWER: the dinar of Chad")
    with serving(judge.app) as url, running_server() as decides:
        for answer_judge, outcome in ((None, Rejection.WRONG_ANSWER), (AnswerJudge(judge_at(decides), 8, 10), None)):
            verifier = JudgeVerifier(judge_at(url), 4, 8, 10, answer_judge=answer_judge)
            assert verifier.verify([candidate()], 1, stream(0)) == [outcome]
    assert judge.shown == [["Chad economy"], ["Chad economy"], []], "only a right answer is asked for again"


def test_the_evidence_stands_among_noise_and_only_right_answers_are_asked_twice():
    judge = Asked(lambda question, titles: "ANSWER: franc" if "Chad economy" in titles else "NO_ANSWER: they do not tell")
    other = candidate((Passage("9", "Mali economy", "gold."), Passage("8", "Togo", "its franc")))
    with serving(judge.app) as url:
        for noise in (1, 0):
            assert by_judge(url, candidate(), other, noise=noise) == [None, Rejection.UNSUPPORTED]
    assert sorted(map(sorted, judge.shown[:3])) == [[], ["Chad economy", "Mali economy"], ["Mali economy", "Togo"]]
    assert sorted(map(sorted, judge.shown[3:])) == [[], ["Chad economy"], ["Mali economy", "Togo"]]


def test_no_more_calls_are_in_flight_than_are_allowed():
    judge = Asked(lambda question, titles: "NO_ANSWER: they do not tell")
    with serving(judge.app) as url:
        assert by_judge(url, *[candidate()] * 7, concurrency=3) == [Rejection.UNSUPPORTED] * 7
    assert (judge.most, len(judge.shown)) == (3, 7)


@pytest.mark.parametrize("fault", ["rate_limit", "reset", "empty", "refusal", "truncated", "prose"])
def test_a_judge_that_does_not_answer_decides_nothing(fault):
    """Neither at the first call nor, after a right answer, at the second."""
    with running_server(faults=f"{fault},ok,{fault},ok*") as url:
        outcomes = [by_judge(url, candidate())[0] for _ in range(3)]
    assert all(isinstance(o, Undecided) and o.cause for o in outcomes[:2])
    assert outcomes[2] is None


def test_a_judge_that_is_down_is_not_asked_about_every_question():
    with running_server(faults="error*") as url:
        outcomes = by_judge(url, *[candidate()] * 5, concurrency=1, give_up_after=2)
    assert ["not asked" in outcome.cause for outcome in outcomes] == [False, False, True, True, True]


def test_one_question_without_an_answer_is_dropped_and_its_siblings_are_not():
    proposals = propose([TARGET], 3, table(proposer_script), step=1)
    with running_server(faults="ok,error,ok*") as url:
        verifier = JudgeVerifier(judge_at(url), 4, concurrency=1, give_up_after=10)
        checked = validate(proposals, ValidationSettings(), verifier, [], frozenset(), 1, stream(0))
    dropped = [p for p in checked if p.dropped]
    assert len(dropped) == 1 and dropped[0].dropped.startswith("verification: judge at ")
    assert (dropped[0].problem, dropped[0].rejection) == (None, None)
    assert len([p for p in checked if p.problem]) == 2


def test_a_run_that_was_opened_without_a_judge_verifies_nothing():
    proposals = propose([TARGET], 2, table(proposer_script), step=1)
    checked = validate(proposals, ValidationSettings(), JudgeVerifier(None, 4, 8, 10), [], frozenset(), 1, stream(0))
    assert all("without a judge" in p.dropped and p.rejection is None for p in checked)
    with pytest.raises(JudgeUnavailable):
        JudgeVerifier(None, 4, 8, 10).verify([candidate()], 1, stream(0))
