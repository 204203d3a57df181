"""Multi-turn play: many games at once, one generation call and one search call per turn.

Owns the trajectory. Invariants: `response_mask` is 1 on sampled tokens only; a sequence's tokens depend on its own seat
(seed, role, step, group, sample, turn), never on batch mates; a search that fails drops its games and scores none.

Edge case: a game that outgrows `rollout.max_context` ends there, its question and all turns so far kept. Old turns are not cut to
make room for new ones: a game is trained on as one row, so each token must have been sampled after the very tokens that precede it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sesa_core.config.models import RolloutSettings, SamplingSettings
from sesa_core.errors import SearchUnavailable
from sesa_core.policy.base import Completion, Engine, GenerationRequest, Sampling
from sesa_core.rng import stream_seed
from sesa_core.rollout.transcript import Transcript
from sesa_core.search.base import SearchBackend
from sesa_core.types import Ending, Passage, Role, ShownCard, Trajectory, Turn, TurnKind


@dataclass(frozen=True)
class Seat:
    """One game to be played. `stream_key` names its random stream beside role, group and sample."""

    role: Role
    group_id: str
    sample: int
    messages: tuple[dict[str, str], ...]
    cards: tuple[ShownCard, ...] = ()


@dataclass
class _Game:
    seat: Seat
    prompt: str
    prompt_ids: tuple[int, ...]
    response_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    ending: Ending | None = None
    drop_cause: str = ""

    def room(self, max_context: int) -> int:
        return max_context - len(self.prompt_ids) - len(self.response_ids)

    def append(self, ids: Sequence[int], log_probs: Sequence[float], sampled: bool) -> None:
        self.response_ids += ids
        self.mask += [int(sampled)] * len(ids)
        self.log_probs += log_probs


@dataclass(frozen=True)
class Table:
    """Everything that a round of games shares."""

    engine: Engine
    transcript: Transcript
    search: SearchBackend
    top_k: int
    settings: RolloutSettings
    seed: int
    greedy: bool = False
    max_searches: int | None = None  # fewer than the settings' own, e.g. 0 for the answerer of the verification
    on_turn: Callable[[int, int], None] | None = None  # told (turn from 0, games still playing) before each turn; may raise to break off

    def sampling(self, role: Role, room: int) -> Sampling:
        chosen: SamplingSettings = self.settings.solver if role is Role.SOLVER else self.settings.proposer
        return Sampling(
            max_new_tokens=min(chosen.max_new_tokens, room),
            temperature=0.0 if self.greedy else chosen.temperature,
            top_p=chosen.top_p,
            top_k=chosen.top_k,
            stop_ids=self.transcript.stop_ids,
            stop_texts=self.transcript.stop_texts,
        )


def play(seats: Sequence[Seat], table: Table, key: Sequence[str | int]) -> list[Trajectory]:
    """Play all games to their end. `key` names this round's streams, e.g. ("train", step). Trajectories in the order of the seats."""
    games = [_open(seat, table) for seat in seats]
    limit = table.settings.max_searches if table.max_searches is None else table.max_searches
    for turn in range(limit + 1):
        live = [g for g in games if g.ending is None]
        if not live:
            break
        if table.on_turn is not None:
            table.on_turn(turn, len(live))
        _generate(live, table, (*key, turn))
        _answer_searches([g for g in live if g.ending is None], table, last_turn=turn == limit)
    return [_close(game, table.engine.policy_version) for game in games]


def _open(seat: Seat, table: Table) -> _Game:
    prompt = table.transcript.prompt_text(seat.messages)
    game = _Game(seat, prompt, table.transcript.encode(prompt))
    if game.room(table.settings.max_context) < 1:
        game.ending = Ending.TRUNCATED
    return game


def _generate(live: Sequence[_Game], table: Table, key: Sequence[str | int]) -> None:
    requests = [
        GenerationRequest(
            prompt_ids=game.prompt_ids + tuple(game.response_ids),
            seed=stream_seed(table.seed, *key, game.seat.role, game.seat.group_id, game.seat.sample),
            sampling=table.sampling(game.seat.role, game.room(table.settings.max_context)),
        )
        for game in live
    ]
    for game, completion in zip(live, table.engine.rollout(requests), strict=True):
        _take(game, completion, table)


def _take(game: _Game, completion: Completion, table: Table) -> None:
    game.append(completion.token_ids, completion.log_probs, sampled=True)
    turn = table.transcript.read(game.seat.role, completion.token_ids)
    game.turns.append(turn)
    if turn.kind is TurnKind.MALFORMED:
        game.ending = Ending.TRUNCATED if game.room(table.settings.max_context) < 1 else Ending.MALFORMED
    elif turn.kind is not TurnKind.SEARCH:
        game.ending = Ending.FINISHED


def _answer_searches(waiting: Sequence[_Game], table: Table, last_turn: bool) -> None:
    if last_turn:
        for game in waiting:
            game.ending = Ending.TURN_LIMIT
        return
    queries = sorted({game.turns[-1].text for game in waiting})
    if not queries:
        return
    try:
        found = dict(zip(queries, table.search.search(queries, table.top_k), strict=True))
    except SearchUnavailable as failure:
        for game in waiting:
            game.ending, game.drop_cause = Ending.DROPPED, f"search: {failure}"
        return
    for game in waiting:
        _show(game, found[game.turns[-1].text], table)


def _show(game: _Game, passages: Sequence[Passage], table: Table) -> None:
    """The best passages, as many whole ones as leave room for a token of the next turn; where not one does, the game ends."""
    room = game.room(table.settings.max_context) - 1
    for count in range(len(passages), 0, -1) or (0,):  # to find nothing is told too
        ids = table.transcript.reply(passages[:count], game.response_ids)
        if len(ids) <= room:
            game.append(ids, [0.0] * len(ids), sampled=False)
            game.turns[-1] = replace(game.turns[-1], passages=tuple(passages[:count]), left_out=len(passages) - count)
            return
    game.ending = Ending.TRUNCATED


def _close(game: _Game, policy_version: int) -> Trajectory:
    return Trajectory(
        role=game.seat.role,
        group_id=game.seat.group_id,
        sample=game.seat.sample,
        prompt=game.prompt,
        prompt_ids=game.prompt_ids,
        response_ids=tuple(game.response_ids),
        response_mask=tuple(game.mask),
        log_probs=tuple(game.log_probs),
        turns=tuple(game.turns),
        ending=game.ending or Ending.TURN_LIMIT,
        cards=game.seat.cards,
        policy_version=policy_version,
        drop_cause=game.drop_cause,
    )
