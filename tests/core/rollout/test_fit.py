"""What is refused before a run begins, since its first game would fail: each with the setting, its value and what to do."""

import pytest

from sesa_core.config.models import RunConfig
from sesa_core.errors import ConfigError
from sesa_core.policy.loading import TINY, load_tokenizer, positions_of
from sesa_core.rollout.fit import require_fit
from sesa_core.rollout.transcript import Transcript
from sesa_core.types import Target
from tests.support import small_tokenizer


def config(max_context: int = 4000, card_tokens: int = 100, enabled: bool = True) -> RunConfig:
    settings = {
        "rollout": {"max_context": max_context, "solver": {"max_new_tokens": 50}, "proposer": {"max_new_tokens": 50}},
        "bank": {"card_tokens": card_tokens, "enabled": enabled},
        "policy": {"path": "some/model"},
    }
    return RunConfig.model_validate(settings)


def refusal(transcript: Transcript, settings: RunConfig, positions: int | None = None) -> str:
    with pytest.raises(ConfigError) as refused:
        require_fit(transcript, settings, positions)
    return str(refused.value)


def test_the_shipped_policy_fits_its_profile():
    assert positions_of(TINY) >= 480
    require_fit(Transcript(load_tokenizer(TINY), "tiny", 3), config(480), positions_of(TINY))


def test_a_model_without_a_chat_template_is_refused():
    bare = small_tokenizer()
    bare.chat_template = None
    said = refusal(Transcript(bare, "default", 3), config())
    assert said.startswith("policy.path: 'some/model' is not allowed; its tokenizer has no chat template; take a chat model")


def test_a_tokenizer_that_splits_the_tags_is_refused_where_they_end_a_turn():
    splits = small_tokenizer(tags_are_tokens=False)
    said = refusal(Transcript(splits, "tiny", 3), config())
    assert said.startswith("rollout.profile: 'tiny' is not allowed; some/model writes </search> in") and said.endswith("set default")
    require_fit(Transcript(splits, "default", 3), config(), None)


def test_a_context_that_the_model_does_not_have_is_refused():
    said = refusal(Transcript(small_tokenizer(), "default", 3), config(4000), positions=2048)
    assert said == "rollout.max_context: 4000 is not allowed; some/model sees 2048 tokens at once; give at most that"


def test_a_prompt_longer_than_the_context_is_refused_with_the_tokens_that_it_needs():
    transcript = Transcript(small_tokenizer(), "default", 3)
    prompts = {
        "solver": len(transcript.encode(transcript.prompt_text(transcript.solver_messages("x")))),
        "proposer": len(transcript.encode(transcript.prompt_text(transcript.proposer_messages(Target("", "x", 1))))),
    }
    with_cards = prompts["solver"] + 1000 + 50  # the cards and one turn
    said = refusal(transcript, config(with_cards - 1, card_tokens=1000))
    assert said.startswith(f"rollout.max_context: {with_cards - 1} is not allowed; a game of the solver needs at least {with_cards} tokens")
    longest = max(prompts, key=prompts.get)
    without = prompts[longest] + 50
    said = refusal(transcript, config(without - 1, card_tokens=1000, enabled=False))
    assert f"a game of the {longest} needs at least {without} tokens" in said, "without a bank no cards"
    require_fit(transcript, config(without, enabled=False), without)
