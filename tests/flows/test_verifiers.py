"""Which verifier the settings name, and that a run which only reads needs no judge."""

from dataclasses import replace

import pytest

from flows.composition import build_answer_judge, build_verifier, open_judge
from flows.worlds import build_world
from sesa_core.config.load import load_config
from sesa_core.errors import JudgeUnavailable
from sesa_core.rng import stream
from sesa_core.rollout.validate import Rejection
from sesa_core.rollout.verify import PolicyVerifier
from tests.core.rollout.test_loop import one_search, table
from tests.core.rollout.test_verify import OTHER_VALUE, TARGET, candidate


@pytest.mark.parametrize("name", ["world", "judge"])
def test_the_settings_choose_who_verifies(name):
    """The world knows that Chad has no dinar, the judge knows only what it is shown."""
    config, asked = (
        load_config(overrides=[f"validation.verifier={name}"]),
        replace(candidate(OTHER_VALUE), target=replace(TARGET, answer="dinar")),
    )
    with open_judge(config) as judge:
        verifier = build_verifier(config, build_world(config), table(one_search), judge)
        (outcome,) = verifier.verify([asked], 1, stream(0))
    assert outcome == {"world": Rejection.WRONG_ANSWER, "judge": None}[name]


def test_a_run_that_only_reads_is_built_without_a_judge():
    config = load_config(overrides=["validation.verifier=judge"])
    verifier = build_verifier(config, build_world(config), table(one_search), None)
    with pytest.raises(JudgeUnavailable, match="without a judge"):
        verifier.verify([candidate()], 1, stream(0))
    solver = load_config(overrides=["validation.verifier=solver"])
    assert isinstance(build_verifier(solver, build_world(solver), table(one_search), None), PolicyVerifier)


@pytest.mark.parametrize("name", ["solver", "judge"])
@pytest.mark.parametrize("check", ["exact", "judge"])
def test_who_verifies_compares_answers_as_rewards_do(name, check, tmp_path):
    (tmp_path / "corpus.jsonl").write_text('{"id": "1", "contents": "\\"Chad\\"\\nIts currency is the franc."}\n')
    (tmp_path / "targets.jsonl").write_text('{"answer": "franc", "aliases": [], "hops": 1, "relation": "currency"}\n')
    (tmp_path / "questions.jsonl").write_text('{"question": "What does Chad pay in?", "golden_answers": ["franc"]}\n')
    settings = (f"validation.verifier={name}", f"rollout.answer_check={check}", "world.kind=files", f"world.path={tmp_path}")
    config = load_config(overrides=[*settings, "evaluation.questions=1"])
    world = build_world(config)
    with open_judge(config) as judge:
        answer_judge = build_answer_judge(config, world, judge)
        verifier = build_verifier(config, world, table(one_search), judge, answer_judge)
        assert verifier.answer_judge is answer_judge, "one for both: it remembers what it decided"
        assert (answer_judge is None) == (check == "exact")
