"""Whether a policy's tokenizer and a run's settings fit together: asked before a run begins, not when its first game fails.

Pure. Invariant: what passes can write its prompts, search, be answered and end its turns. Edge case: a tokenizer that splits
the tags serves every profile but a strict one, whose policy has learnt each tag as one token: the others' turns end at the
text of a tag.
"""

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
    _require_tokens(transcript, policy)
    if positions is not None and context > positions:
        raise ConfigError("rollout.max_context", context, f"{policy} sees {positions} tokens at once; give at most that")
    for role in Role:
        needed = _shortest_game(transcript, config, role)
        if needed > context:
            raise ConfigError("rollout.max_context", context, f"a game of the {role} needs at least {needed} tokens to begin; give more")


def _require_tokens(transcript: Transcript, policy: str) -> None:
    """The tokenizer can write each tag, knows the profile's chat tokens, and a strict profile's tags as one token each."""
    profile, encode = transcript.profile, transcript.encode
    unknown = next((token for token in profile.chat_tokens if not transcript.is_token(token)), None)
    if unknown is not None:
        hint = f"the tokenizer of {policy} does not know {unknown} as one special token; set {_fitting(transcript)}"
        raise ConfigError("rollout.profile", profile.name, hint)
    split = next((text for text in transcript.stop_texts if profile.strict), None)
    if split is not None:
        hint = f"{policy} writes {split} in {len(encode(split))} tokens, and a turn of this profile ends with that one; set default"
        raise ConfigError("rollout.profile", profile.name, hint)
    for text in transcript.stop_texts:
        written = transcript.tokenizer.decode(list(encode(text)), clean_up_tokenization_spaces=False)
        if text not in written:
            hint = f"its tokenizer turns {text} into {written!r}, so no turn could end; take another model"
            raise ConfigError("policy.path", policy, hint)


def _fitting(transcript: Transcript) -> str:
    """The profile of a family whose chat tokens the tokenizer does know, else the one that needs none."""
    families = {name: make().chat_tokens for name, make in PROFILES.items()}
    return next((name for name, tokens in families.items() if tokens and all(map(transcript.is_token, tokens))), "default")


def _shortest_game(transcript: Transcript, config: RunConfig, role: Role) -> int:
    """Tokens of the prompt about nothing in particular and of one turn; for the solver also of the cards."""
    target = Target("", "x", 1)
    messages = transcript.solver_messages("x") if role is Role.SOLVER else transcript.proposer_messages(target)
    cards = config.bank.card_tokens if role is Role.SOLVER and config.bank.enabled and config.bank.top_k else 0
    turn = getattr(config.rollout, role.value).max_new_tokens
    return len(transcript.encode(transcript.prompt_text(messages))) + cards + turn
