"""Whether a policy's tokenizer and a run's settings fit together: asked before a run begins, not when its first game fails.

Pure. Invariant: what passes can write its prompts, search, be answered and end its turns. Edge case: a tokenizer that splits
the tags serves every profile but a strict one, whose policy has learnt each tag as one token: the others' turns end at the
text of a tag.
"""

from jinja2 import TemplateError

from sesa_core.config.models import RunConfig
from sesa_core.errors import ConfigError
from sesa_core.rollout.profiles import PROFILES
from sesa_core.rollout.transcript import Transcript
from sesa_core.types import Role, Target


def require_fit(transcript: Transcript, config: RunConfig, positions: int | None) -> None:
    """`positions` is how many tokens the model can see at once, None if it does not say. Raises ConfigError."""
    policy, context = config.policy.path, config.rollout.max_context
    if not transcript.tokenizer.chat_template:
        hint = "its tokenizer has no chat template; take a chat model, or put a chat_template.jinja beside its tokenizer"
        raise ConfigError("policy.path", policy, hint)
    _require_chat_tokens(transcript, policy)
    _require_tags(transcript, policy)
    if transcript.profile.system or _shows_cards(config):
        _require_system_message(transcript, policy)
    if positions is not None and context > positions:
        raise ConfigError("rollout.max_context", context, f"{policy} sees {positions} tokens at once; give at most that")
    for role in Role:
        needed = _shortest_game(transcript, config, role)
        if needed > context:
            raise ConfigError("rollout.max_context", context, f"a game of the {role} needs at least {needed} tokens to begin; give more")


def _require_chat_tokens(transcript: Transcript, policy: str) -> None:
    unknown = next((token for token in transcript.profile.chat_tokens if not transcript.is_token(token)), None)
    if unknown is not None:
        families = {name: make().chat_tokens for name, make in PROFILES.items()}
        fits = next((name for name, tokens in families.items() if tokens and all(map(transcript.is_token, tokens))), "default")
        hint = f"the tokenizer of {policy} does not know {unknown} as one special token; set {fits}"
        raise ConfigError("rollout.profile", transcript.profile.name, hint)


def _require_tags(transcript: Transcript, policy: str) -> None:
    """Each text that ends a turn can be written and found, and under a strict profile is one token."""
    if transcript.stop_texts and not transcript.tokenizer.is_fast:
        hint = "its tokenizer splits the tags and is not one of Hugging Face's fast ones, whose tokens can be watched; take another model"
        raise ConfigError("policy.path", policy, hint)
    for text in transcript.stop_texts:
        ids = transcript.encode(text)
        written = transcript.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)
        if text not in written:
            hint = f"its tokenizer turns {text} into {written!r}, so no turn could end; take another model"
            raise ConfigError("policy.path", policy, hint)
        if transcript.profile.strict:
            hint = f"{policy} writes {text} in {len(ids)} tokens, and a turn of this profile ends with that one; set default"
            raise ConfigError("rollout.profile", transcript.profile.name, hint)


def _require_system_message(transcript: Transcript, policy: str) -> None:
    tools = bool(transcript.profile.system)
    try:
        transcript.prompt_text(transcript.solver_messages("x", "x"))
    except TemplateError as error:
        hint = f"its chat template takes no system message, where {'tools' if tools else 'cards'} stand ({error}); take another model"
        raise ConfigError("policy.path", policy, hint if tools else f"{hint}, or set bank.enabled false") from None


def _shows_cards(config: RunConfig) -> bool:
    return config.bank.enabled and config.bank.top_k > 0


def _shortest_game(transcript: Transcript, config: RunConfig, role: Role) -> int:
    """Tokens of the prompt about nothing in particular and of one turn; for the solver also of the cards."""
    target = Target("", "x", 1)
    messages = transcript.solver_messages("x") if role is Role.SOLVER else transcript.proposer_messages(target)
    cards = config.bank.card_tokens if role is Role.SOLVER and _shows_cards(config) else 0
    turn = getattr(config.rollout, role.value).max_new_tokens
    return len(transcript.encode(transcript.prompt_text(messages))) + cards + turn
