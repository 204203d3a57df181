"""An evaluation: what is played, with which streams, and how outcomes become accuracy."""

from dataclasses import replace

import pytest

from sesa_core.bank.snapshot import BankSnapshot
from sesa_core.cards.lesson import embedding_text
from sesa_core.config.models import BankSettings, EvaluationSettings, RunConfig, SamplingSettings
from sesa_core.evaluation.metrics import wilson_interval
from sesa_core.evaluation.runner import EvaluationQuestion, EvaluationReport, evaluate
from sesa_core.policy.base import GenerationRequest
from sesa_core.rng import stream_seed
from tests.bank_support import SECTION, card, embedder
from tests.core.rollout.test_loop import table
from tests.support import DownSearch, ScriptedEngine

CARDS = sorted((card(r) for r in SECTION), key=lambda c: c.card_id)
SNAPSHOT = BankSnapshot(CARDS, embedder().embed_cards([embedding_text(c) for c in CARDS]), embedder(), 3)
QUESTIONS = [
    EvaluationQuestion("q1", "What is the anthem of Chad?", ("hymn",), 1, "shown"),
    EvaluationQuestion("q2", "What is the anthem of Mali?", ("ode", "song"), 1, "held_out"),
    EvaluationQuestion("q3", "What is the climate of Togo?", ("wet",), 2, "held_out"),
]


class RecordingEngine(ScriptedEngine):
    """Also keeps every request and the text of its prompt."""

    def rollout(self, requests):
        self.asked = [*getattr(self, "asked", []), *((self.tokenizer.decode(list(r.prompt_ids)), r) for r in requests)]
        return super().rollout(requests)


ARMS = ("off", "on", "placebo")


def measure(script, snapshot=None, samples=0, arms=ARMS, card_tokens=600, **parts) -> tuple[EvaluationReport, RecordingEngine]:
    bank = BankSettings(top_k=1, card_style="compact", card_tokens=card_tokens)
    config = RunConfig(evaluation=EvaluationSettings(arms=arms, samples=samples, split="test"), bank=bank)
    seated = table(script, **parts)
    engine = RecordingEngine(seated.engine.tokenizer, script)
    engine.policy_version = 7
    return evaluate(QUESTIONS, replace(seated, engine=engine), snapshot, config), engine


def knows_two(prompt: str, seed: int) -> str:
    """Right about Chad and, by its second name, about Mali; wrong about Togo."""
    return "<answer>Hymn</answer>" if "Chad" in prompt else "<answer>song</answer>" if "Mali" in prompt else "<answer>dry</answer>"


def seeds(mode: str, question_id: str, samples) -> set[int]:
    """The streams of a question's first turns: named by question and sample, not by arm."""
    return {stream_seed(0, "evaluate", mode, 0, "solver", question_id, s) for s in samples}


def test_accuracy_by_hand():
    report, _ = measure(knows_two, arms=("off",))
    arm = report.arms["off"]
    assert arm.outcomes == (1.0, 1.0, 0.0) and arm.greedy == pytest.approx(2 / 3)
    assert arm.greedy_interval == wilson_interval(2, 3)
    assert arm.by_hops == {"1": 1.0, "2": 0.0} and arm.by_kind == {"shown": 1.0, "held_out": 0.5}
    assert (report.split, report.questions, report.samples, report.policy_version, report.bank_version) == ("test", 3, 0, 7, None)
    assert (arm.sampled, arm.sampled_outcomes) == (None, (None, None, None))


def test_each_question_gets_the_mean_of_its_own_samples():
    right = seeds("sampled", "q1", (0, 1, 3)) | seeds("sampled", "q3", (2,))

    def script(prompt: str, seed: int) -> str:
        return f"<answer>{'hymn' if 'Chad' in prompt else 'wet' if 'Togo' in prompt else 'ode'}</answer>" if seed in right else "none"

    report, _ = measure(script, samples=4, arms=("off",))
    assert report.arms["off"].sampled_outcomes == (0.75, 0.0, 0.25)
    assert report.arms["off"].sampled == pytest.approx(1 / 3)
    assert report.arms["off"].outcomes == (0.0, 0.0, 0.0), "greedy play has streams of its own"


def test_identical_prompts_are_played_once_and_count_in_every_arm():
    report, engine = measure(knows_two, samples=2)
    assert len(engine.asked) == 3 + 3 * 2, "without a bank the three arms are one"
    assert len({(a.outcomes, a.sampled_outcomes) for a in report.arms.values()}) == 1


def test_arms_that_show_other_cards_play_the_same_streams():
    _, engine = measure(knows_two, SNAPSHOT, samples=2)
    streams: dict[str, set[int]] = {}
    for prompt, request in engine.asked:
        shown = prompt.split(": search")[0].split("[S1] ")[1] if "[S1] " in prompt else "off"
        streams.setdefault(f"{shown}/{'Chad' in prompt}", set()).add(request.seed)
    chad = {name: found for name, found in streams.items() if name.endswith("/True")}
    assert set(chad) > {"off/True", "anthem/True"} and len(chad) == 3, "no card, the right one, an irrelevant one"
    assert all(found == seeds("greedy", "q1", [0]) | seeds("sampled", "q1", [0, 1]) for found in chad.values())


def test_only_the_arm_that_tells_profits_from_a_solver_that_reads():
    report, _ = measure(lambda prompt, seed: f"<answer>{'hymn' if 'culture' in prompt else 'none'}</answer>", SNAPSHOT)
    assert {name: arm.greedy for name, arm in report.arms.items()} == {"off": 0.0, "on": pytest.approx(1 / 3), "placebo": 0.0}
    assert report.arms["on"].cards_per_question == report.arms["placebo"].cards_per_question > 0
    assert report.arms["off"].cards_per_question == 0
    assert report.bank_version == 3


def test_a_card_that_no_prompt_has_room_for_was_not_shown():
    report, _ = measure(knows_two, SNAPSHOT, card_tokens=16)
    assert {name: arm.cards_per_question for name, arm in report.arms.items()} == {"off": 0, "on": 0, "placebo": 0}


def test_a_dropped_rollout_leaves_every_denominator_and_is_counted():
    def script(prompt: str, seed: int) -> str:
        return "<search>Mali</search>" if "Mali" in prompt else knows_two(prompt, seed)

    report, _ = measure(script, samples=2, arms=("off",), search=DownSearch())
    arm = report.arms["off"]
    assert arm.outcomes == (1.0, None, 0.0) and arm.greedy == 0.5 and arm.greedy_interval == wilson_interval(1, 2)
    assert arm.by_kind == {"shown": 1.0, "held_out": 0.0} and arm.by_hops == {"1": 1.0, "2": 0.0}
    assert arm.sampled_outcomes[0] == 1.0 and arm.sampled_outcomes[2] == 0.0
    assert arm.dropped == 1 + 2


def test_a_question_of_which_every_sample_was_dropped_has_no_sampled_outcome():
    def script(prompt: str, seed: int) -> str:
        return "<search>Mali</search>" if "Mali" in prompt else knows_two(prompt, seed)

    arm = measure(script, samples=2, arms=("off",), search=DownSearch())[0].arms["off"]
    assert arm.sampled_outcomes == (1.0, None, 0.0) and arm.sampled == 0.5


def test_an_unfinished_game_is_wrong_whatever_it_wrote():
    report, _ = measure(lambda prompt, seed: "hymn", arms=("off",))
    assert report.arms["off"].outcomes == (0.0, 0.0, 0.0) and report.arms["off"].dropped == 0


def test_more_answers_than_count_in_training_count_for_nothing_here():
    report, _ = measure(lambda prompt, seed: "<answer>wet</answer><answer>hymn</answer>", arms=("off",), profile="default")
    assert report.arms["off"].outcomes == (0.0, 0.0, 0.0), "the last one is right for Chad, but it is the second"


def test_the_protocol_decides_how_tokens_are_drawn_not_the_training_settings():
    config = RunConfig(evaluation=EvaluationSettings(arms=("off",), samples=1))
    seated = table(knows_two)
    training = SamplingSettings(temperature=0.3, top_p=0.5, top_k=4, max_new_tokens=33)
    engine = RecordingEngine(seated.engine.tokenizer, knows_two)
    seated = replace(seated, engine=engine, settings=seated.settings.model_copy(update={"solver": training}))
    told: list[str] = []
    evaluate(QUESTIONS, seated, None, config, told.append)
    drawn: list[GenerationRequest] = [request for _, request in engine.asked]
    assert [(r.sampling.temperature, r.sampling.top_p, r.sampling.top_k) for r in drawn] == [(0.0, 1.0, 0)] * 3 + [(1.0, 1.0, 0)] * 3
    assert {r.sampling.max_new_tokens for r in drawn} == {33}
    assert told == ["greedy", "sampled"]
