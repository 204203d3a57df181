"""Whether a policy's tokenizer and a run's settings fit together: asked before a run begins, not when its first game fails.

Pure. Invariant: what passes can write its prompts and end its turns. Edge case: a tokenizer that splits the tags still serves a
profile whose turns may end otherwise.
"""

from sesa_core.config.models import RunConfig
from sesa_core.errors import ConfigError
from sesa_core.rollout.transcript import STOP_TAGS, Transcript
from sesa_core.types import Role, Target


def require_fit(transcript: Transcript, config: RunConfig, positions: int | None) -> None:
    """`positions` is how many tokens the model can see at once, None if it does not say. Raises ConfigError."""
    policy, context = config.policy.path, config.rollout.max_context
    if not transcript.tokenizer.chat_template:
        hint = "its tokenizer has no chat template; take a chat model, or put a chat_template.jinja beside its tokenizer"
        raise ConfigError("policy.path", policy, hint)
    split = next((tag for tag in STOP_TAGS if len(transcript.encode(tag)) != 1), None)
    if transcript.profile.strict and split is not None:
        hint = (
            f"{policy} writes {split} in {len(transcript.encode(split))} tokens, and a turn of this profile ends with that one; set default"
        )
        raise ConfigError("rollout.profile", transcript.profile.name, hint)
    if positions is not None and context > positions:
        raise ConfigError("rollout.max_context", context, f"{policy} sees {positions} tokens at once; give at most that")
    for role in Role:
        needed = _shortest_game(transcript, config, role)
        if needed > context:
            raise ConfigError("rollout.max_context", context, f"a game of the {role} needs at least {needed} tokens to begin; give more")


def _shortest_game(transcript: Transcript, config: RunConfig, role: Role) -> int:
    """Tokens of the prompt about nothing in particular and of one turn; for the solver also of the cards."""
    target = Target("", "x", 1)
    messages = transcript.solver_messages("x") if role is Role.SOLVER else transcript.proposer_messages(target)
    cards = config.bank.card_tokens if role is Role.SOLVER and config.bank.enabled and config.bank.top_k else 0
    turn = getattr(config.rollout, role.value).max_new_tokens
    return len(transcript.encode(transcript.prompt_text(messages))) + cards + turn
