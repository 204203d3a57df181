"""Demonstrations: clean ones are right, open ones hold the habits, and no true section of a held-out relation is ever shown."""

import re
from collections import Counter

import pytest
import torch

from sesa_core.policy.tiny import MAX_POSITIONS, SHIPPED, encode_segments
from sesa_core.rng import stream
from sesa_core.training.demonstrations import CLEAN, OPEN, Demonstrations, Habits
from sesa_core.training.demonstrations.habits import STOPPING_KINDS, WRONG_SECTIONS
from sesa_core.training.demonstrations.proposer import ProposerDemonstrations
from sesa_core.training.demonstrations.segments import scramble, substitute
from sesa_core.training.demonstrations.solver import SolverDemonstrations
from sesa_core.training.demonstrations.words import Words
from sesa_core.training.muon import Muon, orthogonalise
from sesa_core.world.load import load_world
from sesa_core.world.questions import resolve
from sesa_core.world.schema import HELD_OUT_KINDS, HELD_OUT_RELATIONS, KINDS, RELATION_SECTION, RELATIONS
from sesa_core.world.text import mentions

WORLD = load_world()


@pytest.fixture
def demonstrations():
    return Demonstrations(WORLD, stream(7, "test"))


@pytest.fixture
def plain_solver():
    """Known questions about the real world: nothing renamed."""
    return SolverDemonstrations(WORLD, Words(WORLD, stream(7, "test")), modes=("known",), counterfactual=False)


def question_of(segments):
    return segments[0][1].rsplit("Question: ", 1)[1].rstrip("\n")


def inside(segment):
    return re.sub(r"</?\w+>", "", segment[1])


def test_clean_solver_demonstrations_end_in_the_right_answer(plain_solver):
    for _ in range(400):
        segments = plain_solver.draw(CLEAN)
        found = resolve(WORLD, question_of(segments))
        assert found.split == "train"
        assert inside(segments[-1]) == found.answer
        assert len([s for s in segments if s[0] == "environment"]) == found.hops
        assert all(any(mentions(t, k) and mentions(t, v) for _, t in segments[1:]) for k, v in found.needed)


def test_clean_proposals_ask_for_the_target_with_the_hops_that_were_asked():
    proposer = ProposerDemonstrations(WORLD, Words(WORLD, stream(7, "test")), counterfactual=False)
    shapes = Counter()
    for _ in range(400):
        segments = proposer.draw(CLEAN)
        relation, answer, hops = re.fullmatch(r"Target: (.+?): (.+)\nHops: (\d)\n", segments[0][1]).groups()
        found = resolve(WORLD, inside(segments[-1]))
        assert (found.relation, found.answer, found.hops, found.ambiguous, found.split) == (relation, answer, int(hops), False, "train")
        assert not mentions(inside(segments[-1]), answer)
        searches = [s[1] for s in segments if s[1].startswith("<search>")]
        assert len(set(searches)) == len(searches) == found.hops
        assert all(any(k in t and v in t for r, t in segments if r == "environment") for k, v in found.needed)
        shapes[found.chain.shape] += 1
    assert set(shapes) == {"country", "entity", "link", "entity-link", "link-link"}


@pytest.mark.parametrize("habits", [CLEAN, OPEN], ids=["clean", "open"])
def test_no_demonstration_opens_or_names_the_true_section_of_a_held_out_relation_or_kind(demonstrations, habits):
    for _ in range(3000):
        segments = demonstrations.draw(habits)
        text = "".join(t for _, t in segments)
        for relation in HELD_OUT_RELATIONS:
            section = RELATION_SECTION[relation]
            assert f'{relation}: search "{{country}} {section}"' not in text
            assert not re.search(rf"<information>[^<]* {section}\. (?:[^<]*\. )?{relation}: ", text), text
        for kind in HELD_OUT_KINDS:
            assert f"{{{kind}}} {KINDS[kind].section}" not in text


def test_no_demonstration_names_a_country_of_another_split_as_its_subject(demonstrations):
    elsewhere = {c for s in ("dev", "test") for c in WORLD.countries_by_split[s]}
    for _ in range(2000):
        segments = demonstrations.draw(OPEN)
        queries = [inside(s) for s in segments if s[1].startswith("<search>")]
        assert not any(q.rsplit(" ", 1)[0] in elsewhere for q in queries)


def test_habits_are_the_more_likely_behaviour_and_the_right_one_is_not_rare(plain_solver):
    habits = Habits(wrong_section=OPEN.wrong_section, stop=OPEN.stop, skip_link=OPEN.skip_link, bare_namesake=OPEN.bare_namesake)
    seen = {"wrong": Counter(), "stop": Counter()}
    for _ in range(6000):
        segments = plain_solver.draw(habits)
        if "[S1]" in segments[0][1]:
            continue
        found = resolve(WORLD, question_of(segments))
        right = inside(segments[-1]) == found.answer
        if found.chain.shape == "country" and found.relation in WRONG_SECTIONS:
            seen["wrong"][right] += 1
        if found.chain.shape == "entity" and found.chain.entity.kind in STOPPING_KINDS and found.relation not in WRONG_SECTIONS:
            seen["stop"][right] += 1
    for counts in seen.values():
        assert counts.total() > 40
        assert 0.4 < counts[False] / counts.total() < 0.8


def test_wrong_sections_are_wrong_and_of_known_relations():
    for relation, section in WRONG_SECTIONS.items():
        assert relation not in HELD_OUT_RELATIONS
        assert RELATION_SECTION[relation] != section


def test_they_come_with_zero_to_three_cards_and_fit_the_context(demonstrations):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
    counts, drawn = Counter(), []
    for _ in range(600):
        segments = demonstrations.draw(OPEN, solver_share=1.0)
        counts[len(re.findall(r"^\[S\d\] ", segments[0][1], re.MULTILINE))] += 1
        drawn.append(segments)
    assert set(counts) == {0, 1, 2, 3}
    assert max(len(ids) for ids, _ in encode_segments(tokenizer, drawn)) <= MAX_POSITIONS


def test_the_same_stream_gives_the_same_demonstrations():
    draws = [[Demonstrations(WORLD, stream(3, "x")).draw(OPEN) for _ in range(5)] for _ in range(2)]
    assert draws[0] == draws[1]


def test_substitution_replaces_whole_strings_at_once():
    segments = [("prompt", "Chad and Chad culture, not Chadian"), ("model", "A or B")]
    swapped = substitute(segments, {"Chad": "Mali", "Chad culture": "x", "A": "B", "B": "A"})
    assert swapped == [("prompt", "Mali and x, not Chadian"), ("model", "B or A")]


def test_scrambling_keeps_asked_labels_and_renames_the_rest():
    segments = [("environment", "<information>Chad culture. symbol: goat. anthem: La Tchadienne.</information>")]
    [(_, text)] = scramble(segments, {"symbol"}, {"anthem"}, lambda section: "zeal", stream(1, "s"), 0.0)
    assert text == "<information>Chad culture. symbol: goat. zeal: La Tchadienne.</information>"
    [(_, text)] = scramble(segments, {"symbol"}, set(), lambda section: "zeal", stream(1, "s"), 1.0)
    assert "symbol: goat." in text
    assert "anthem" not in text


def test_every_relation_and_kind_of_the_schema_is_known_or_held_out():
    assert set(RELATIONS) >= HELD_OUT_RELATIONS
    assert set(KINDS) >= HELD_OUT_KINDS


def test_orthogonalised_updates_have_singular_values_near_one():
    torch.manual_seed(0)
    for shape in ((2, 8, 8), (1, 4, 12), (1, 12, 4)):
        singular = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert 0.6 < singular.min() < singular.max() < 1.3


def test_muon_descends():
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(6, 4))
    goal = torch.randn(6, 4)
    optimizer = Muon([weight], lr=0.2, weight_decay=0.0)
    first = (weight - goal).square().mean().item()
    for _ in range(60):
        optimizer.zero_grad()
        (weight - goal).square().mean().backward()
        optimizer.step()
    assert (weight - goal).square().mean().item() < 0.1 * first
