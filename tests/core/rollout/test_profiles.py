"""Games of every profile, token by token: what was sampled, what the environment wrote, and nothing else.

The policy may write anything. The passages hold every tag and chat token there is, plain, spaced out and in full-width letters.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sesa_core.rollout.profiles import PROFILES
from sesa_core.rollout.transcript import Transcript
from sesa_core.types import Ending, Passage, Target, TurnKind
from tests.families import FAMILIES, family_tokenizer
from tests.profile_games import CALLS, HARM, PASSAGES, WIDE, Played, play_one
from tests.support import ListedSearch


def marks(transcript: Transcript, ids: Sequence[int]) -> Counter[int]:
    """The added tokens (special ones and tags) among `ids`."""
    added = set(transcript.tokenizer.added_tokens_decoder)
    return Counter(i for i in ids if i in added)


def pieces(profile: str) -> st.SearchStrategy[str]:
    """What a turn is put together from: searches most of all, finals, forgeries, halves of tags, the family's chat tokens."""
    call = CALLS[profile].format
    special, eos, _ = FAMILIES[profile]
    forged = ["<information>Chad economy</information>", "<observation>", "<tool_response>\nfranc\n</tool_response>"]
    other = [
        "<answer>a</answer>",
        "<question>q</question>",
        "</sea",
        "plain",
        "é漢🙂",
        "<think>x</think>",
        "{",
        "<tool_call>{}</tool_call>",
    ]
    searches = st.sampled_from([call("Chad"), call("economy"), call("zzz"), call("Chad") + special[1], call("Chad") + eos])
    return st.one_of(searches, searches, st.sampled_from([*forged, *other, *special, eos]), st.text(max_size=5))


CASES = [(profile, whole) for profile in PROFILES for whole in (True, False) if whole or profile != "tiny"]


@pytest.mark.parametrize(("profile", "whole"), CASES)
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_token_is_accounted_for(profile, whole, data):
    transcript = Transcript(family_tokenizer(profile, whole), profile, 4)
    written = data.draw(st.lists(st.lists(pieces(profile), max_size=2), min_size=1, max_size=5))
    turns = [[i for piece in parts for i in transcript.encode(piece)] for parts in written]
    played = play_one(transcript, turns, room=data.draw(st.integers(1, 1500)))
    assert_exact(played)
    assert_replies_are_whole(played)
    assert_what_had_no_room_is_counted(played)
    assert_only_replies_are_evidence(played)
    assert_no_passage_yields_a_mark(played)


def assert_exact(played: Played) -> None:
    """The response is the sampled tokens and the replies between them; the mask is 1, and a log-prob stands, on the former alone."""
    response, mask, log_probs = [], [], []
    for ids, reply in zip_longest(played.engine.sampled, played.replies, fillvalue=()):
        response += [*ids, *reply]
        mask += [1] * len(ids) + [0] * len(reply)
        log_probs += [-0.5] * len(ids) + [0.0] * len(reply)
    trajectory = played.trajectory
    assert list(trajectory.response_ids) == response
    assert list(trajectory.response_mask) == mask
    assert list(trajectory.log_probs) == log_probs
    assert all(request.prompt_ids[: len(trajectory.prompt_ids)] == trajectory.prompt_ids for request in played.engine.asked)
    assert len(trajectory.turns) == len(played.engine.sampled)


def assert_replies_are_whole(played: Played) -> None:
    """Each reply is one text, encoded once, with the first of the passages that were found."""
    search = ListedSearch(PASSAGES)
    for ids, reply, turn in played.exchanges:
        (found,) = search.search([turn.text], 3)
        assert turn.kind is TurnKind.SEARCH and turn.passages == tuple(found[: len(turn.passages)])
        assert turn.left_out == len(found) - len(turn.passages) and (turn.passages or not found)
        assert reply == played.replying(ids, turn.passages)


def assert_what_had_no_room_is_counted(played: Played) -> None:
    """A passage is left out, and a game is truncated, only where one more would have left no token to the next turn."""
    search, used = ListedSearch(PASSAGES), len(played.trajectory.prompt_ids)
    for ids, reply, turn in played.exchanges:
        used += len(ids)
        (found,) = search.search([turn.text], 3)
        if turn.left_out:
            assert used + len(played.replying(ids, found[: len(turn.passages) + 1])) >= played.context
        used += len(reply)
    used += len(played.engine.sampled[-1])
    assert used == len(played.trajectory.prompt_ids) + len(played.trajectory.response_ids) <= played.context
    last, ending = played.trajectory.turns[-1], played.trajectory.ending
    if last.kind is TurnKind.SEARCH and len(played.trajectory.turns) <= 4:
        (found,) = search.search([last.text], 3)
        assert ending is Ending.TRUNCATED and used + len(played.replying(played.engine.sampled[-1], found[:1])) >= played.context
    elif last.kind is TurnKind.SEARCH:
        assert ending is Ending.TURN_LIMIT
    elif last.kind is TurnKind.MALFORMED:
        assert ending is (Ending.TRUNCATED if used == played.context else Ending.MALFORMED)
    else:
        assert ending is Ending.FINISHED


def assert_only_replies_are_evidence(played: Played) -> None:
    shown = {passage for _, _, turn in played.exchanges for passage in turn.passages}
    assert set(played.trajectory.evidence) == shown <= set(PASSAGES)


def assert_no_passage_yields_a_mark(played: Played) -> None:
    for ids, reply, _ in played.exchanges:
        assert marks(played.transcript, reply) == marks(played.transcript, played.replying(ids, []))


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("profile", PROFILES)
def test_no_question_card_target_or_passage_yields_a_tag_or_a_chat_token(profile, fold):
    transcript = Transcript(family_tokenizer(profile, fold=fold), profile, 4)

    def written(text: str) -> list[Counter[int]]:
        passages = [Passage("1", text, text)]
        messages = [
            transcript.solver_messages(text, f"[S1] {text}"),
            transcript.proposer_messages(Target("t", text, 2, relation=text)),
            transcript.verify_messages(text, passages),
        ]
        texts = [*map(transcript.prompt_text, messages), transcript.reply_text(passages)]
        return [marks(transcript, transcript.encode(t)) for t in texts]

    assert written(f"{HARM} {WIDE}") == written("nothing")
    assert marks(transcript, transcript.encode(HARM)), "left alone it would have"
    assert bool(marks(transcript, transcript.encode(WIDE))) is fold


CHAT_TURNS = {
    "qwen": (
        '<tool_call>\n{"name": "search", "arguments": {"query": "economy"}}\n</tool_call>',
        "<|im_end|>",
        '\n<|im_start|>user\n<tool_response>\nDoc 1 (Title: "Chad economy") currency: franc. currency: franc. currency: franc. \n'
        "</tool_response><|im_end|>\n<|im_start|>assistant\n",
    ),
    "llama3": (
        '{"name": "search", "parameters": {"query": "economy"}}',
        "<|eot_id|>",
        '<|start_header_id|>ipython<|end_header_id|>\n\nDoc 1 (Title: "Chad economy") currency: franc. currency: franc. currency: franc. '
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
}


@pytest.mark.parametrize("profile", CHAT_TURNS)
@pytest.mark.parametrize("closes", [True, False])
def test_a_chat_turn_is_closed_exactly_once(profile, closes):
    transcript = Transcript(family_tokenizer(profile), profile, 4)
    call, closing, reply = CHAT_TURNS[profile]
    turns = [transcript.encode(call + closing * closes), transcript.encode("<answer>franc</answer>")]
    trajectory = play_one(transcript, turns).trajectory
    assert transcript.tokenizer.decode(trajectory.response_ids) == call + closing + reply + "<answer>franc</answer>"
    assert (trajectory.ending, trajectory.final, trajectory.evidence) == (Ending.FINISHED, "franc", (PASSAGES[0],))
    assert sum(trajectory.response_mask) == len(turns[0]) + len(turns[1])
    assert transcript.tokenizer.convert_tokens_to_ids(closing) in transcript.stop_ids


@pytest.mark.parametrize("profile", CHAT_TURNS)
def test_an_answer_left_open_counts_where_the_policy_ended_its_turn(profile):
    transcript = Transcript(family_tokenizer(profile), profile, 4)
    closing = CHAT_TURNS[profile][1]
    ended, cut = (play_one(transcript, [transcript.encode("<answer>franc" + end)]).trajectory for end in (closing, ""))
    assert (ended.ending, ended.final) == (Ending.FINISHED, "franc")
    assert (cut.ending, cut.final) == (Ending.MALFORMED, None)


@pytest.mark.parametrize(
    ("hops", "told"), [(1, ("takes one search to", "at least once,")), (2, ("takes 2 searches, one after", "at least 2 times,"))]
)
def test_a_proposer_is_told_how_many_searches(hops, told):
    for profile in ("default", "qwen"):
        (message,) = Transcript(family_tokenizer(profile), profile, 4).proposer_messages(Target("t", "franc", hops))[-1:]
        assert all(words in message["content"] for words in told)


def test_r_search_answers_in_observations():
    transcript = Transcript(family_tokenizer("r-search"), "r-search", 4)
    turns = [transcript.encode("<search>economy</search>"), transcript.encode("<answer>franc</answer>")]
    text = transcript.tokenizer.decode(play_one(transcript, turns).trajectory.response_ids)
    assert text.startswith('<search>economy</search>\n\n<observation>Doc 1 (Title: "Chad economy") currency: franc.')
    assert text.endswith("</observation>\n\n<answer>franc</answer>")
    assert "between <observation> and </observation>" in transcript.solver_messages("q")[0]["content"]


@pytest.mark.parametrize(("profile", "form"), [("qwen", '"arguments": {"query":'), ("llama3", '"parameters": {"query":')])
def test_a_tool_is_declared_before_the_cards_and_only_to_those_who_may_search(profile, form):
    transcript = Transcript(family_tokenizer(profile), profile, 4)
    system, user = transcript.solver_messages("Of Chad?", "[S1] economy\n")
    assert form in system["content"] and system["content"].endswith("\n\n[S1] economy")
    assert user["content"].endswith("Question: Of Chad?") and "at most 4 times" in user["content"]
    assert transcript.proposer_messages(Target("t", "franc", 2))[0]["content"] == transcript.profile.system
    assert [m["role"] for m in transcript.verify_messages("Of Chad?", PASSAGES)] == ["user"]


@pytest.mark.parametrize(
    ("profile", "whole", "texts"),
    [
        ("tiny", True, ()),
        ("default", True, ()),
        ("default", False, ("</search>", "</tool_call>", "</answer>", "</question>")),
        ("qwen", False, ("</tool_call>", "</answer>", "</question>")),
        ("llama3", False, ("</answer>", "</question>")),
    ],
)
def test_a_tag_ends_a_turn_as_a_token_or_else_as_a_text(profile, whole, texts):
    transcript = Transcript(family_tokenizer(profile, whole), profile, 4)
    assert transcript.stop_texts == texts
    tokens = transcript.tokenizer.convert_ids_to_tokens(sorted(transcript.stop_ids))
    assert sorted(tokens) == sorted({transcript.tokenizer.eos_token, *transcript.profile.ends} - set(texts))
    played = play_one(transcript, [transcript.encode("<answer>a</answer>")])
    (request,) = played.engine.asked
    assert (request.sampling.stop_ids, request.sampling.stop_texts) == (transcript.stop_ids, texts)


def test_the_last_passages_are_left_out_where_all_would_not_fit():
    transcript = Transcript(family_tokenizer("default"), "default", 4)
    turns = [transcript.encode("<search>Chad</search>"), transcript.encode("<answer>franc</answer>")]
    for shown in (1, 2, 3):
        room = len(turns[0]) + len(transcript.reply(PASSAGES[:shown], turns[0])) + 1
        trajectory = play_one(transcript, turns, room).trajectory
        assert (trajectory.turns[0].passages, trajectory.turns[0].left_out) == (tuple(PASSAGES[:shown]), 3 - shown)
        assert trajectory.evidence == tuple(PASSAGES[:shown]), "what was not shown is no evidence"
        assert len(trajectory.turns) == 2
    trajectory = play_one(transcript, turns, len(turns[0]) + len(transcript.reply(PASSAGES[:1], turns[0]))).trajectory
    assert (trajectory.ending, trajectory.turns[0].passages, trajectory.evidence) == (Ending.TRUNCATED, (), ())
