"""What is refused before a run begins, since its first game would fail: each with the setting, its value and what to do."""

import copy

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from sesa_core.config.models import RunConfig
from sesa_core.errors import ConfigError
from sesa_core.policy.loading import TINY, load_tokenizer, positions_of
from sesa_core.policy.stopping import token_pieces
from sesa_core.rollout.fit import require_fit
from sesa_core.rollout.transcript import Transcript
from sesa_core.types import Target
from tests.families import family_tokenizer
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
    for profile in ("default", "r-search", "qwen", "llama3"):
        require_fit(Transcript(family_tokenizer(profile, whole=False), profile, 3), config(), None)


@pytest.mark.parametrize(
    ("profile", "family", "token", "fits"),
    [
        ("qwen", "default", "<|im_end|>", "default"),
        ("qwen", "llama3", "<|im_end|>", "llama3"),
        ("llama3", "qwen", "<|eot_id|>", "qwen"),
        ("llama3", "default", "<|eot_id|>", "default"),
    ],
)
def test_a_family_s_chat_turns_need_its_chat_tokens(profile, family, token, fits):
    said = refusal(Transcript(family_tokenizer(family), profile, 3), config())
    assert said == (
        f"rollout.profile: '{profile}' is not allowed; the tokenizer of some/model does not know {token} as one special token; set {fits}"
    )


@pytest.mark.parametrize("profile", ["default", "tiny"])
def test_a_tokenizer_that_cannot_spell_a_tag_is_refused(profile):
    """One that knows words alone writes a tag as one unknown token, which ends no turn."""
    words = Tokenizer(models.WordLevel({"<unk>": 0, "<eos>": 1, "search": 2}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", eos_token="<eos>")
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    transcript = Transcript(tokenizer, profile, 3)
    said = refusal(transcript, config())
    assert said == (
        "policy.path: 'some/model' is not allowed; its tokenizer turns </search> into '<unk> search <unk>', so no turn could end; "
        "take another model"
    )
    assert transcript.stop_ids == {1}, "what stands for everything unknown ends nothing"


def test_a_tokenizer_whose_tokens_cannot_be_watched_is_refused_where_it_splits_the_tags():
    tokenizer = ByT5Tokenizer()
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    assert token_pieces(tokenizer) == []
    said = refusal(Transcript(tokenizer, "default", 3), config())
    assert said.startswith(
        "policy.path: 'some/model' is not allowed; its tokenizer splits the tags and is not one of Hugging Face's fast ones"
    )


REFUSES = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ messages[0]['content'] }}"


def test_a_chat_template_without_system_messages_is_refused_where_one_is_needed():
    plain, qwen = copy.deepcopy(family_tokenizer("default")), copy.deepcopy(family_tokenizer("qwen"))
    plain.chat_template = qwen.chat_template = REFUSES
    said = "policy.path: 'some/model' is not allowed; its chat template takes no system message, where {} stand (no system); "
    said += "take another model"
    assert refusal(Transcript(plain, "default", 3), config()) == said.format("cards") + ", or set bank.enabled false"
    require_fit(Transcript(plain, "default", 3), config(enabled=False), None)
    assert refusal(Transcript(qwen, "qwen", 3), config(enabled=False)) == said.format("tools")


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
