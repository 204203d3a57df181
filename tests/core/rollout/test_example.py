"""The game that was played well: written as the policy's own game will be, readable by its profile, and about nothing that is true."""

import pytest

from sesa_core.rollout.example import EXAMPLES, QUESTION, TARGET
from sesa_core.rollout.profiles import PROFILES
from sesa_core.rollout.transcript import Transcript
from sesa_core.text.normalize import normalize
from sesa_core.types import Role, Target, TurnKind
from sesa_core.world.load import load_world
from tests.families import family_tokenizer


def shown(profile: str, role: Role, worked_example: bool = True) -> tuple[Transcript, list[dict[str, str]]]:
    transcript = Transcript(family_tokenizer(profile), profile, 4, worked_example)
    messages = transcript.solver_messages("Who?", "cards") if role is Role.SOLVER else transcript.proposer_messages(Target("t", "Lima", 1))
    return transcript, messages


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("profile", PROFILES)
def test_it_stands_after_the_cards_and_before_the_own_task(profile, role):
    _, without = shown(profile, role, worked_example=False)
    _, messages = shown(profile, role)
    assert [m["role"] for m in messages[-3:]] == ["user", "assistant", "user"]
    assert messages[:-3] + messages[-1:] == without
    assert (QUESTION if role is Role.SOLVER else TARGET.answer) in messages[-3]["content"]


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("profile", PROFILES)
def test_its_turns_are_read_as_the_searches_and_the_final_that_they_are(profile, role):
    transcript, messages = shown(profile, role)
    rest = messages[-2]["content"]
    for query, found in EXAMPLES[role].searches:
        reply = transcript.reply_text(found)
        turn, rest = rest.split(reply, 1)
        read = transcript.read(role, transcript.encode(turn))
        assert (read.kind, read.text) == (TurnKind.SEARCH, query)
    read = transcript.read(role, transcript.encode(rest))
    assert (read.kind, read.text) == ((TurnKind.ANSWER, TARGET.answer) if role is Role.SOLVER else (TurnKind.QUESTION, QUESTION))


@pytest.mark.parametrize("profile", sorted(set(PROFILES) - {"tiny"}))
def test_it_is_what_a_game_of_its_turns_leaves_in_the_context(profile):
    """Turns and replies encoded each on its own, as in a game, and read as one text."""
    transcript, messages = shown(profile, Role.SOLVER)
    turns = [transcript.encode(transcript.profile.call.replace("{query}", query)) for query, _ in EXAMPLES[Role.SOLVER].searches]
    replies = [transcript.encode(transcript.reply_text(found)) for _, found in EXAMPLES[Role.SOLVER].searches]
    final = transcript.encode(EXAMPLES[Role.SOLVER].final)
    played = [i for turn, reply in zip(turns, replies, strict=True) for i in (*turn, *reply)] + list(final)
    assert transcript.tokenizer.decode(played) == messages[-2]["content"]


def test_it_gives_nothing_away():
    world = load_world()
    names = {normalize(name) for name in (*world.countries, *world.entities_by_name)}
    assert not names & {normalize(text) for text in ("Freedonia", "Lake Tarn", TARGET.answer)}
