"""A game as a person reads it, line by line, and as data; and how each reward was made up. Pure.

Invariant: text of a policy, a passage or a card stands on one line and holds nothing that a terminal obeys.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sesa_core.config.models import RunConfig
from sesa_core.config.proposer_rewards import ProposerRewardSettings
from sesa_core.report.rollouts import Game, equal
from sesa_core.rollout.stored import StoredRollout
from sesa_core.text.normalize import matches
from sesa_core.types import Ending, Role, Turn, TurnKind

TITLE, HEAD, TEXT = "title", "head", "text"  # kinds of lines
LABEL = 11  # columns of what stands before a text
Shown = Callable[[StoredRollout], bool]  # which rollouts of a game are wanted


def every(rollout: StoredRollout) -> bool:
    return True


def safe_line(text: str) -> str:
    """White space folded, control characters written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in " ".join(text.split()))


@dataclass
class Cutter:
    """Cuts texts to `limit` characters (None: never), and knows whether it did."""

    limit: int | None
    did: bool = False

    def __call__(self, text: str) -> str:
        line = safe_line(text)
        if self.limit is None or len(line) <= self.limit:
            return line
        self.did = True
        return f"{line[: self.limit].rstrip()} … {len(line) - self.limit} characters more"


def game_lines(game: Game, config: RunConfig, cut: Cutter, shown: Shown = every) -> Iterator[tuple[str, str]]:
    """Kind and text of every line: the problem, how the proposer came to it, then each rollout of the solver."""
    about = game.about
    if game.problem_id:
        yield TITLE, f"problem {game.problem_id} · step {about.place.step}"
        yield TEXT, _labelled("question", cut(about.question))
    else:
        yield TITLE, f"proposals that posed no problem · step {about.place.step}"
    hops = "hops not recorded" if about.hops is None else f"{about.hops} hop{'s' * (about.hops != 1)}"
    target = f" · {cut(game.target_id)}" if game.target_id else ""
    yield TEXT, _labelled("target", f"{cut(about.reference_answers[0]) if about.reference_answers else '?'} · {hops}{target}")
    if len(about.reference_answers) > 1:
        yield TEXT, _labelled("answers", cut(" | ".join(about.reference_answers)))
    if game.rollouts:
        alike = " · no advantage, since all rewards are equal" if game.equal_rewards else ""
        yield TEXT, _labelled("solved", f"{game.solved} of {len(game.rollouts)}{alike}")
    if game.problem_id and not game.proposals:
        yield TEXT, _labelled("posed", "in an earlier step that is not stored here")
    for rollout in filter(shown, (*game.proposals, *game.rollouts)):
        yield TEXT, ""
        yield from rollout_lines(rollout, game, config, cut)


def rollout_lines(rollout: StoredRollout, game: Game, config: RunConfig, cut: Cutter) -> Iterator[tuple[str, str]]:
    """One rollout, from the cards that it saw to what it earned."""
    tokens = "" if rollout.response_tokens is None else f" · {rollout.response_tokens} tokens"
    earlier = f" · posed at step {rollout.place.step}" if rollout.place.step != game.about.place.step else ""
    head = f"{rollout.role} {rollout.trajectory_id} · sample {rollout.sample}{earlier} · policy {rollout.policy_version}"
    yield HEAD, f"{head} · {rollout.ending.replace('_', ' ')}{tokens}"
    if rollout.role is Role.SOLVER:
        yield TEXT, _labelled("  cards", _cards(rollout, game))
        for card in rollout.cards:
            yield TEXT, f"    {cut(card.text)}"
    for turn in rollout.turns:
        yield from _turn_lines(turn, cut)
    earned = "none" if rollout.reward is None else f"{rollout.reward:.2f}"
    if rollout.older and rollout.role is Role.PROPOSER:
        earned = "not recorded"
    yield TEXT, _labelled("  reward", f"{earned}{_advantage(rollout, game, config)} · {cut(reward_parts(rollout, game, config))}")


def _advantage(rollout: StoredRollout, game: Game, config: RunConfig) -> str:
    """With its sign. Where there is none because those of its problem with cards (or without) earned alike, it says so; that the
    whole group did stands above it."""
    apart = config.grpo.baseline == "arm" and 2 <= sum(bool(r.relevant_cards) for r in game.rollouts) <= len(game.rollouts) - 2
    if rollout.advantage is not None:
        return f" · advantage {rollout.advantage:+.2f}"
    if rollout.older or rollout.role is not Role.SOLVER or game.equal_rewards or not (apart and equal(game.arm_rewards(rollout))):
        return ""
    return f" · no advantage: those with{'' if rollout.relevant_cards else 'out'} cards earned alike"


def _turn_lines(turn: Turn, cut: Cutter) -> Iterator[tuple[str, str]]:
    if turn.thought:
        yield TEXT, _labelled("  thought", cut(turn.thought))
    yield TEXT, _labelled(f"  {turn.kind}", cut(turn.text))
    for passage in turn.passages:
        yield TEXT, f"    {cut(f'{passage.title}: {passage.text}')} ({safe_line(passage.passage_id)})"
    if turn.kind is TurnKind.SEARCH and not turn.passages:
        yield TEXT, "    nothing was shown"
    if turn.left_out:
        yield TEXT, f"    {turn.left_out} more found, for which there was no room"


def _labelled(label: str, text: str) -> str:
    return f"{label:<{LABEL}} {text}"


def _cards(rollout: StoredRollout, game: Game) -> str:
    kind = "decoys " if rollout.cards and rollout.cards[0].decoy else ""
    shown = ", ".join(f"{safe_line(c.card_id)} (similarity {c.similarity:.2f})" for c in rollout.cards)
    withheld = ", ".join(map(safe_line, game.withheld(rollout)))
    return f"{kind}{shown or 'none'}{f' · withheld {withheld}' if withheld else ''}"


def reward_parts(rollout: StoredRollout, game: Game, config: RunConfig) -> str:
    """Why a rollout earned what it did, under the settings of its run."""
    return _solver_parts(rollout, config) if rollout.role is Role.SOLVER else _proposer_parts(rollout, game, config)


def _solver_parts(rollout: StoredRollout, config: RunConfig) -> str:
    if rollout.ending is not Ending.FINISHED or rollout.final is None:
        return "no answer"
    tags, allowed = sum(t.tags for t in rollout.turns if t.kind is TurnKind.ANSWER), config.rollout.max_answer_tags
    if tags > allowed:
        return f"{tags} answers where {allowed} may be given"
    if not rollout.reward:
        return "the answer is wrong"
    judged = config.rollout.answer_check == "judge" and not matches(rollout.final, rollout.reference_answers)
    return "the judge calls the answer right" if judged else "the answer is right"


def _proposer_parts(rollout: StoredRollout, game: Game, config: RunConfig) -> str:
    settings = config.proposer_reward
    if rollout.rejection:
        return f"not valid: {rollout.rejection} (proposer_reward.invalid_reward {settings.invalid_reward:g})"
    if not rollout.valid or (rollout.drop_cause and not game.rollouts):
        return f"dropped: {rollout.drop_cause or 'the cause is not recorded'}"
    played = game.rollouts if rollout.place.step == game.about.place.step else ()
    if not played:
        return (
            "valid; how it was played then stands at its own step"
            if game.rollouts
            else "valid; it was not played (in runs of earlier versions)"
        )
    rate = f"{game.solved}/{len(played)}"
    extreme = {0: "nobody", len(played): "all"}.get(game.solved, "")
    return f"valid; {settings.kind}{_shaping(settings, rate, extreme)}"


def _shaping(settings: ProposerRewardSettings, rate: str, extreme: str) -> str:
    """The formula with its numbers; `extreme`: who solved it, if it was all or nobody."""
    match settings.kind:
        case "frontier" if extreme:
            least = f"{0 - settings.extreme_penalty:g}"  # no "-0"
            return f": {least}, since {extreme} solved it (pass rate {rate}; minus proposer_reward.extreme_penalty)"
        case "frontier":
            return f": 4 ({settings.low:g} + {rate}) ({settings.high:g} - {rate})"
        case "one_minus_pass_rate":
            return f": 1 - {rate}"
        case "pass_rate_band":
            return f": 1 - 2 |{rate} - 1/2|"
        case "valid_only":
            return f" at a pass rate of {rate}"


def game_data(game: Game, config: RunConfig, shown: Shown = every) -> dict[str, Any]:
    """Everything that is stored of a game, whole."""
    about = game.about
    return {
        "problem": game.problem_id or None,
        "question": about.question or None,
        "step": about.place.step,
        "segment": about.place.segment,
        "attempt": about.place.attempt,
        "counts": about.place.counts,
        "origin": about.origin or None,
        "target": game.target_id or None,
        "hops": about.hops,
        "reference_answers": list(about.reference_answers),
        "solved": game.solved,
        "proposals": [rollout_data(r, game, config) for r in filter(shown, game.proposals)],
        "rollouts": [rollout_data(r, game, config) for r in filter(shown, game.rollouts)],
    }


def rollout_data(rollout: StoredRollout, game: Game, config: RunConfig) -> dict[str, Any]:
    turns = [
        {
            **{"kind": t.kind.value, "text": t.text, "thought": t.thought, "tags": t.tags},
            "left_out": t.left_out,
            "passages": [{"passage_id": p.passage_id, "title": p.title, "text": p.text} for p in t.passages],
        }
        for t in rollout.turns
    ]
    return {
        **{"trajectory": rollout.trajectory_id, "step": rollout.place.step, "role": rollout.role.value, "group_id": rollout.group_id},
        **{"sample": rollout.sample, "policy_version": rollout.policy_version, "ending": rollout.ending.value},
        **{"reward": rollout.reward, "reward_parts": reward_parts(rollout, game, config), "advantage": rollout.advantage},
        **{"rejection": rollout.rejection or None, "drop_cause": rollout.drop_cause or None, "response_tokens": rollout.response_tokens},
        "cards": [{"card_id": c.card_id, "similarity": c.similarity, "decoy": c.decoy, "text": c.text} for c in rollout.cards],
        "withheld": game.withheld(rollout),
        "prompt": rollout.prompt,
        "turns": turns,
        "final": rollout.final,
    }
