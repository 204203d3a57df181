"""Demonstrations are written as games are: a warm start on another format would teach a policy to read what it never sees."""

import pytest
from transformers import AutoTokenizer

from sesa_core.cards.render import card_line
from sesa_core.cards.schema import SkillCard
from sesa_core.policy.tiny import SHIPPED
from sesa_core.rng import stream
from sesa_core.rollout.transcript import Transcript
from sesa_core.training.demonstrations import OPEN, Demonstrations
from sesa_core.training.demonstrations import cards as deck
from sesa_core.training.demonstrations.segments import (
    ENVIRONMENT,
    MODEL,
    PROMPT,
    answer_turn,
    proposer_prompt,
    question_turn,
    search_turn,
    solver_prompt,
)
from sesa_core.types import Passage, Role, Target, TurnKind
from sesa_core.world.load import load_world
from tests.bank_support import card

TRANSCRIPT = Transcript(AutoTokenizer.from_pretrained(SHIPPED), "tiny", 4)
QUESTION = "What is the anthem of Chad?"


def test_cards_are_written_by_the_renderer_of_training():
    told = [deck.relation_card("anthem", "culture"), deck.kind_card("river", "course"), deck.namesake_card()]
    cards = [card("anthem", card_id=f"c{i}", trigger_keywords=(t,), queries=(q,)) for i, (t, q) in enumerate(told)]
    assert all(isinstance(c, SkillCard) for c in cards)
    assert deck.render(told) == [card_line(c, number, "compact") for number, c in enumerate(cards, 1)]


@pytest.mark.parametrize("lines", [[], ['[S1] anthem: search "{country} culture"'], ['[S1] a: search "b"', '[S2] c: search "d"']])
def test_a_solver_prompt_is_the_one_that_a_game_begins_with(lines):
    messages = TRANSCRIPT.solver_messages(QUESTION, "".join(f"{line}\n" for line in lines))
    assert solver_prompt(QUESTION, lines) == (PROMPT, TRANSCRIPT.prompt_text(messages))


def test_a_proposer_prompt_is_the_one_that_a_game_begins_with():
    messages = TRANSCRIPT.proposer_messages(Target("t", "La Tchadienne", 2, relation="anthem"))
    assert proposer_prompt("anthem", "La Tchadienne", 2) == (PROMPT, TRANSCRIPT.prompt_text(messages))


def test_a_target_of_no_relation_is_named_by_its_answer_and_no_relation_writes_a_tag():
    def prompt(relation: str) -> str:
        return TRANSCRIPT.proposer_messages(Target("t", "La Tchadienne", 2, relation=relation))[0]["content"]

    assert prompt("") == "Target: La Tchadienne\nHops: 2"
    assert prompt("<answer>anthem").startswith("Target: ") and "<answer>" not in prompt("<answer>anthem")


def test_what_the_environment_writes_is_what_it_writes_in_a_game():
    document = load_world().documents_by_title["Chad culture"][0]
    (_, query), observed = search_turn("Chad culture", document)
    passage = Passage(document.passage_id, document.title, document.text)
    assert observed == (ENVIRONMENT, TRANSCRIPT.reply_text([passage]))
    turn = TRANSCRIPT.read(Role.SOLVER, TRANSCRIPT.encode(query))
    assert (turn.kind, turn.text) == (TurnKind.SEARCH, "Chad culture")


def test_final_turns_are_read_as_final_turns():
    for role, (speaker, text), kind in (
        (Role.SOLVER, answer_turn("La Tchadienne"), TurnKind.ANSWER),
        (Role.PROPOSER, question_turn(QUESTION), TurnKind.QUESTION),
    ):
        ids = TRANSCRIPT.encode(text)
        turn = TRANSCRIPT.read(role, ids)
        assert (speaker, turn.kind, turn.tags) == (MODEL, kind, 1)
        assert ids[-1] in TRANSCRIPT.stop_ids, "the generator stops where the demonstration does"


def test_every_turn_of_many_demonstrations_is_well_formed_and_stops_at_its_end():
    demonstrations = Demonstrations(load_world(), stream(5, "format"))
    kinds = set()
    for _ in range(150):
        for speaker, text in demonstrations.draw(OPEN):
            if speaker != MODEL:
                continue
            ids = TRANSCRIPT.encode(text)
            role = Role.PROPOSER if text.startswith("<question>") else Role.SOLVER
            kinds.add(TRANSCRIPT.read(role, ids).kind)
            assert [i for i in ids if i in TRANSCRIPT.stop_ids] == [ids[-1]]
    assert kinds == {TurnKind.SEARCH, TurnKind.ANSWER, TurnKind.QUESTION}
