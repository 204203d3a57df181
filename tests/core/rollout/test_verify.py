from dataclasses import dataclass, replace
from functools import partial

from sesa_core.config.models import ValidationSettings
from sesa_core.errors import SearchUnavailable
from sesa_core.rng import stream
from sesa_core.rollout.proposer import propose, validate
from sesa_core.rollout.validate import Rejection
from sesa_core.rollout.verify import Candidate, PolicyVerifier, WorldVerifier
from sesa_core.types import Ending, Passage, Role, Target, Trajectory, Turn, TurnKind
from sesa_core.world.load import load_world
from sesa_core.world.questions import resolve
from tests.core.rollout.test_loop import table

TARGET = Target("t1", "franc", 1, relation="currency")
EVIDENCE = (Passage("1", "Chad economy", "currency: franc."),)


@dataclass(frozen=True)
class Answer:
    answer: str = "franc"
    hops: int = 1
    needed: tuple[tuple[str, str], ...] = (("Chad", "franc"),)
    ambiguous: bool = False
    splits: frozenset[str] = frozenset({"train"})


def candidate(evidence=EVIDENCE) -> Candidate:
    turns = (Turn(TurnKind.SEARCH, "q", evidence), Turn(TurnKind.QUESTION, "What is the currency of Chad?"))
    run = Trajectory(Role.PROPOSER, "t1", 0, "", (1,), (2,), (1,), (0.0,), turns, Ending.FINISHED)
    return Candidate("What is the currency of Chad?", TARGET, run)


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


def answerer(with_evidence: str, without: str):
    def script(prompt: str, seed: int) -> str:
        return f"<answer>{with_evidence if 'currency: franc' in prompt else without}</answer>"

    return PolicyVerifier(replace(table(script), greedy=True, max_searches=0), noise_passages=4)


def test_the_answerer_must_need_the_evidence():
    other = candidate((Passage("9", "Mali economy", "currency: none."), Passage("8", "Togo", "its franc")))
    assert answerer("franc", "dinar").verify([candidate(), other], 1, stream(0))[0] is None
    assert answerer("franc", "franc").verify([candidate()], 1, stream(0)) == [Rejection.TOO_EASY]
    assert answerer("dinar", "dinar").verify([candidate()], 1, stream(0)) == [Rejection.WRONG_ANSWER]


def test_noise_never_holds_the_target():
    verifier = answerer("franc", "x")
    other = candidate((Passage("9", "Mali economy", "gold."), Passage("8", "Togo", "its franc")))
    shown = verifier._with_noise(candidate(), [candidate(), other], stream(0))
    assert {p.passage_id for p in shown} == {"1", "9"}


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
