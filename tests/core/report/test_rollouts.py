"""Games, hits and statistics of two steps that were written by hand; every number is counted there."""

import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sesa_core.config.load import load_config
from sesa_core.errors import UserError
from sesa_core.report import rollouts as report
from sesa_core.report.game_text import Cutter, game_data, game_lines, reward_parts
from sesa_core.rollout.profiles import PROFILES
from sesa_core.rollout.solver import SolverRound
from sesa_core.rollout.stored import COUNTING, LATER, LISTING, SCHEMA, SEARCHING, StepFile, read_step, step_files
from sesa_core.rollout.transcript import Transcript
from sesa_core.training.records import write_trajectories
from sesa_core.types import Group, Role, Trajectory
from tests.families import family_tokenizer
from tests.profile_games import CALLS, PASSAGES, play_one
from tests.rollouts_support import CHAD, PROBLEM, TARGET, first_step, second_step

CONFIG = load_config()
PROPOSER_ROW = {"count": 3, "reward": 0.5, "valid": 0.5, "turns": 2, "searches": 4 / 3, "tokens": 2, "shown_cards": None, "questions": 2}
SOLVER_ROW = {"count": 4, "reward": 0.5, "valid": None, "turns": 2, "searches": 1, "tokens": 2, "shown_cards": 0.5, "questions": 1}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory) -> Path:
    """Segment 1 has both steps in attempt 1 and the first again in attempt 2; segment 2 is in progress."""
    root = tmp_path_factory.mktemp("run")
    for place, name, record in (
        ("segments/00001/attempt-1", "step-00001", first_step()),
        ("segments/00001/attempt-1", "step-00002", second_step()),
        ("segments/00001/attempt-2", "step-00001", first_step()),
        ("segments/00002/attempt-1", "step-00003", replace(second_step(), step=3)),
    ):
        write_trajectories(root / place / "trajectories" / f"{name}.parquet", record)
    return root


@pytest.fixture(scope="module")
def files(run_dir) -> list[StepFile]:
    return step_files(run_dir, {(1, 1)})


def text(game: report.Game, limit: int | None = None, **more) -> str:
    return "\n".join(line for _, line in game_lines(game, CONFIG, Cutter(limit), **more))


def played_under(profile: str) -> Trajectory:
    """A search that one of two passages had room for, then an answer, written as the profile's family writes them."""
    transcript = Transcript(family_tokenizer(profile), profile, 4)
    call = f"so {CALLS[profile].format('Chad')}" if not transcript.profile.strict else CALLS[profile].format("Chad")
    turns = [transcript.encode(call), transcript.encode("<answer>gold</answer>")]
    return play_one(transcript, turns, len(turns[0]) + len(transcript.reply(PASSAGES[:1], turns[0])) + 20).trajectory


@pytest.mark.parametrize("profile", PROFILES)
def test_a_game_of_every_profile_is_read_alike(profile, tmp_path):
    """What is stored are the turns as they were read, whatever the wire format of the family."""
    played = played_under(profile)
    assert (len(played.turns), played.turns[0].left_out) == (2, 2)
    record = replace(first_step(), round=SolverRound((Group(PROBLEM, (replace(played, group_id=PROBLEM.problem_id),), (1.0,)),), {}))
    path = tmp_path / "segments/00001/attempt-1/trajectories/step-00001.parquet"
    write_trajectories(path, record)
    stored = read_step(StepFile(1, 1, 1, True, path))
    (rollout,) = (r for r in stored if r.role is Role.SOLVER)
    assert rollout.turns == tuple(replace(t, passages=tuple(replace(p, score=0.0) for p in t.passages)) for t in played.turns)
    game = report.game(PROBLEM.problem_id, stored)
    shown = text(game)
    assert "  search    Chad" in shown and "  answer    gold" in shown and "    Chad economy: currency: franc." in shown
    assert "    2 more found, for which there was no room" in shown
    assert ("  thought   so" in shown) == (profile != "tiny")
    assert game_data(game, CONFIG)["rollouts"][0]["turns"][0]["left_out"] == 2


def test_only_attempts_that_count_are_listed_unless_all_are_asked_for(run_dir, files):
    assert [(f.step, f.segment, f.attempt, f.counts) for f in files] == [(1, 1, 1, True), (2, 1, 1, True)]
    everything = step_files(run_dir, {(1, 1)}, others=True)
    assert [(f.step, f.attempt, f.counts) for f in everything] == [(1, 1, True), (1, 2, False), (2, 1, True), (3, 1, False)]
    assert [read_step(f)[0].trajectory_id for f in everything] == ["1/0", "1/0@2", "2/0", "3/0@1"]
    assert not list(run_dir.rglob("*.part"))


def test_a_rollout_is_read_as_it_was_written(files):
    rollouts, record = read_step(files[0]), first_step()
    assert [(r.role, r.sample, r.number) for r in rollouts] == [
        *((Role.PROPOSER, i, i) for i in range(3)),
        *((Role.SOLVER, i, 3 + i) for i in range(4)),
    ]
    assert [r.turns for r in rollouts[:3]] == [p.trajectory.turns for p in record.proposals]
    assert [r.cards for r in rollouts[3:]] == [t.cards for t in record.round.groups[0].trajectories]
    assert [(r.reward, r.advantage) for r in rollouts] == [(1, 0.7), (0, -0.7), (None, None), (1, 0.8), (0, -0.8), (0, -0.8), (1, 0.8)]
    assert [(r.valid, r.rejection, r.dropped, r.drop_cause) for r in rollouts[:3]] == [
        (True, "", False, ""),
        (False, "answer_leak", False, ""),
        (False, "", True, "search: down"),
    ]
    first, solver = rollouts[0], rollouts[3]
    assert (first.problem_id, first.origin, first.hops, first.target_id) == ("p-1", "proposer", 2, TARGET.target_id)
    assert (solver.problem_id, solver.target_id, solver.reference_answers, solver.response_tokens) == (
        "p-1",
        TARGET.target_id,
        ("gold", "or"),
        2,
    )
    assert not first.older and read_step(files[1])[1].origin == "pool"


def test_reading_fewer_columns_reads_nothing_else(files):
    rollout = read_step(files[0], SEARCHING)[0]
    assert [p.title for t in rollout.turns for p in t.passages] == ["Chad economy"] and rollout.turns[0].thought == "where is gold?"
    assert {p.text for t in rollout.turns for p in t.passages} == {""} and rollout.prompt == "" and rollout.hops is None
    assert read_step(files[0], LISTING)[3].turns == ()


def older_file(files, path: Path) -> StepFile:
    """The first step as an earlier SESA wrote it."""
    names = [n for n in SCHEMA.names if n not in LATER]
    lean = {"turns": ("kind", "text", "passages"), "cards": ("card_id", "similarity", "text")}
    rows = [
        {n: [{k: e[k] for k in lean[n]} for e in row[n]] if n in lean else row[n] for n in names}
        for row in pq.read_table(files[0].path).to_pylist()
    ]
    pq.write_table(pa.Table.from_pylist([row | {"reward": row["reward"] if row["role"] == "solver" else None} for row in rows]), path)
    return StepFile(1, 1, 1, True, path)


def test_what_an_earlier_version_wrote_is_read(files, tmp_path):
    old = older_file(files, tmp_path / "step-00001.parquet")
    rollouts = read_step(old)
    assert all(r.older and r.hops is None and r.advantage is None for r in rollouts)
    assert [r.dropped for r in rollouts[:3]] == [False, False, True]
    assert rollouts[0].problem_id.startswith("p-") and rollouts[3].problem_id == "p-1", (
        "a valid proposal's problem follows from its question"
    )
    (row,) = report.statistics((r for r in read_step(old, COUNTING) if r.role is Role.SOLVER), "role")
    assert (row["count"], row["tokens"], row["reward"]) == (4, None, 0.5)
    said = text(report.game("p-1", rollouts))
    assert "hops not recorded" in said and "advantage" not in said


def test_a_damaged_file_is_named(files, tmp_path):
    path = tmp_path / "step-00001.parquet"
    path.write_bytes(files[0].path.read_bytes()[:200])
    with pytest.raises(UserError, match="step-00001.parquet cannot be read"):
        read_step(StepFile(1, 1, 1, True, path))


def test_a_game_reads_from_the_proposer_s_search_to_the_last_reward(files):
    found = report.game("p-1", read_step(files[0]))
    assert (len(found.proposals), len(found.rollouts), found.solved) == (1, 4, 2)
    said = text(found)
    for line in (
        "problem p-1 · step 1",
        "question    Which metal is of Chad?",
        "target      gold · 2 hops · train:gold:2",
        "answers     gold | or",
        "solved      2 of 4",
        "proposer 1/0 · sample 0 · policy 3 · finished · 3 tokens",
        "  thought   where is gold?",
        "  reward    1.00 · advantage +0.70 · valid; frontier: 4 (0 + 2/4) (1 - 2/4)",
        "  cards     c-metal (similarity 0.61)",
        "  cards     none · withheld c-metal",
        "  cards     decoys c-crop (similarity 0.10) · withheld c-metal",
        r"  malformed I\x1b[31m do not know",
        "  reward    0.00 · advantage -0.80 · no answer",
        "  reward    0.00 · advantage -0.80 · the answer is wrong",
    ):
        assert line in said.splitlines(), line
    assert "characters more" not in said and f"{len(' '.join(f'{CHAD.title}: {CHAD.text}'.split())) - 30} characters more (w1)" in text(
        found, 30
    )
    only = text(found, shown=lambda r: r.sample == 3)
    assert "solver 1/6" in only and "solver 1/3" not in only and "solved      2 of 4" in only


def test_an_answer_that_the_judge_called_right_says_so(files):
    """Only where a judge was asked, and only of an answer that equals no reference."""
    found, _ = report.games_of_target(TARGET.target_id, read_step(files[0]))
    right, wrong = found.rollouts[0], found.rollouts[2]
    judged = load_config(overrides=["rollout.answer_check=judge"])
    in_other_words = replace(wrong, reward=1.0)
    told = [reward_parts(r, found, judged) for r in (right, wrong, in_other_words)]
    assert told == ["the answer is right", "the answer is wrong", "the judge calls the answer right"]


def test_how_a_reward_was_made_up(files):
    rollouts, parts = read_step(files[0]), []
    found, others = report.games_of_target(TARGET.target_id, rollouts)
    assert (found.problem_id, others.problem_id, [r.number for r in others.proposals]) == ("p-1", "", [1, 2])
    parts = [reward_parts(r, others, CONFIG) for r in others.proposals]
    assert parts == ["not valid: answer_leak (proposer_reward.invalid_reward 0)", "dropped: search: down"]
    alone, lost = replace(found, rollouts=()), replace(found.proposals[0], drop_cause="search: down")
    assert reward_parts(found.proposals[0], alone, CONFIG) == "valid; it was not played (in runs of earlier versions)"
    assert reward_parts(lost, alone, CONFIG) == "dropped: search: down"
    right, wrong = (replace(found, rollouts=found.rollouts[i : i + 1]) for i in (0, 2))
    extreme = "valid; frontier: {} solved it (pass rate {}/1; minus proposer_reward.extreme_penalty)"
    assert reward_parts(found.proposals[0], right, CONFIG) == extreme.format("0, since all", 1)
    costly = load_config(overrides=["proposer_reward.extreme_penalty=0.5", "proposer_reward.invalid_reward=-1"])
    assert reward_parts(found.proposals[0], wrong, costly) == extreme.format("-0.5, since nobody", 0)
    formulas = {"one_minus_pass_rate": ": 1 - 2/4", "pass_rate_band": ": 1 - 2 |2/4 - 1/2|", "valid_only": " at a pass rate of 2/4"}
    for kind, formula in formulas.items():
        config = load_config(overrides=[f"proposer_reward.kind={kind}"])
        assert reward_parts(found.proposals[0], found, config) == f"valid; {kind}{formula}"
    twice = replace(found.rollouts[0], turns=(replace(found.rollouts[0].turns[-1], tags=2),))
    assert reward_parts(twice, found, CONFIG) == "2 answers where 1 may be given"


def test_a_problem_from_the_pool_is_shown_with_the_step_that_posed_it(files):
    rollouts = read_step(files[1])
    posed = report.find_posed(files, "p-1", before=2)
    found = replace(report.game("p-1", rollouts), proposals=posed)
    assert [r.trajectory_id for r in posed] == ["1/0"] and report.find_posed(files, "p-1", before=1) == ()
    assert "posed at step 1" in text(found) and "problem p-1 · step 2" in text(found)
    data = game_data(found, CONFIG)
    assert (data["origin"], data["solved"], [r["trajectory"] for r in data["rollouts"]]) == ("pool", 2, ["2/1", "2/2"])
    assert data["proposals"][0]["turns"][0]["passages"][0]["text"] == CHAD.text


def test_a_group_that_earned_alike_is_said_to_have_no_advantage(files):
    played, alike = report.game("p-1", read_step(files[0])), report.game("p-1", read_step(files[1]))
    assert (played.equal_rewards, alike.equal_rewards) == (False, True)
    assert "solved      2 of 2 · no advantage, since all rewards are equal" in text(alike).splitlines()
    alone = replace(alike, rollouts=(alike.rollouts[0], replace(alike.rollouts[1], reward=None)))
    assert not alone.equal_rewards, "one reward is compared with none"
    with_cards = [replace(r, reward=1.0, advantage=None) for r in played.rollouts[:2]]  # the two others earned 0 and 1
    half = replace(played, rollouts=(*with_cards, *played.rollouts[2:]))
    said = [line for line in text(half).splitlines() if line.startswith("  reward")]
    assert said[1:] == [
        "  reward    1.00 · no advantage: those with cards earned alike · the answer is right",
        "  reward    1.00 · no advantage: those with cards earned alike · no answer",
        "  reward    0.00 · advantage -0.80 · the answer is wrong",
        "  reward    1.00 · advantage +0.80 · the answer is right",
    ]
    compared = CONFIG.model_copy(update={"grpo": CONFIG.grpo.model_copy(update={"baseline": "group"})})
    left_out = "\n".join(line for _, line in game_lines(half, compared, Cutter(None)))
    assert "earned alike" not in left_out, "the whole group is compared then, and these two were left out for another reason"


def test_the_problem_to_show_first_is_one_that_not_all_played_alike(files):
    first, second = read_step(files[0]), read_step(files[1])
    as_other = [replace(r, problem_id="p-0", group_id="p-0") for r in second if r.role is Role.SOLVER]
    assert report.problem_ids([*as_other, *first])[0] == "p-0"
    assert report.telling_problem([*as_other, *first]) == "p-1"
    assert report.telling_problem(as_other) == "p-0", "if there is none the first will do"
    assert report.telling_problem([r for r in first if not r.problem_id]) == ""


def test_what_a_step_holds(files):
    rollouts = read_step(files[0])
    assert report.listing(rollouts) == [{"problem": "p-1", "solved": "2 of 4", "question": PROBLEM.question}]
    assert report.rejections(rollouts) == {"valid": 1, "answer_leak": 1, "dropped": 1}


def test_ids_are_looked_for_from_the_newest_step_and_reading_stops_there(files, tmp_path):
    unreadable = StepFile(0, 1, 1, True, tmp_path / "nothing.parquet")
    assert report.find_problem([unreadable, *files], "p-")[:2] == (files[1], ["p-1"])
    assert report.find_target([unreadable, *files], TARGET.target_id)[:2] == (files[1], [TARGET.target_id])
    assert report.find_problem(files, "p-2") == (None, [], ["p-1"])


def places(pattern: str, rollouts) -> list[tuple[str, str]]:
    return [(h.rollout.trajectory_id, h.place) for h in report.hits(re.compile(pattern), rollouts)]


def test_a_pattern_is_found_in_every_text_and_a_group_s_question_once(files):
    rollouts = read_step(files[0], SEARCHING)
    assert places("Which metal", rollouts) == [("1/0", "question"), ("1/3", "question")]
    assert places("where is gold", rollouts) == [("1/0", "thought")]
    assert places("economy$", rollouts) == [
        *(("1/0", "passage 1.1"), ("1/1", "passage 1.1"), ("1/3", "search 1"), ("1/3", "passage 1.1")),
        *(("1/6", "search 1"), ("1/6", "passage 1.1")),
    ]
    assert places("people|salt|know", rollouts) == [("1/4", "malformed"), ("1/5", "search 2"), ("1/5", "answer")]
    assert places("Which metal", rollouts[5:]) == [("1/5", "question")], "the first of those that are searched"
    (hit,) = report.hits(re.compile("is of"), rollouts[:1])
    assert hit.around(6) == ("…metal ", "is of", " Chad?")


def test_statistics_are_those_counted_by_hand(files):
    proposer, solver = report.statistics(read_step(files[0], COUNTING), "role")
    assert proposer == PROPOSER_ROW | {"role": "proposer", "endings": {"finished": 2 / 3, "dropped": 1 / 3}}
    assert solver == SOLVER_ROW | {"role": "solver", "endings": {"finished": 0.75, "malformed": 0.25}}


def test_statistics_by_anything(files):
    both = [r for f in files for r in read_step(f, COUNTING)]
    cells = {by: [(row[by], row["role"], row["count"]) for row in report.statistics(both, by)] for by in report.GROUPINGS if by != "role"}
    assert cells["step"] == [(1, "proposer", 3), (1, "solver", 4), (2, "proposer", 1), (2, "solver", 2)]
    assert cells["segment"] == [(1, "proposer", 4), (1, "solver", 6)]
    assert cells["hops"] == [(2, "proposer", 4), (2, "solver", 6)]
    assert cells["ending"] == [
        *(("finished", "proposer", 2), ("finished", "solver", 5), ("malformed", "proposer", 1), ("malformed", "solver", 1)),
        ("dropped", "proposer", 1),
    ]
    assert [row["questions"] for row in report.statistics(both, "segment")] == [2, 1], "the problem from the pool is not a second one"
    assert report.statistics([], "step") == []
