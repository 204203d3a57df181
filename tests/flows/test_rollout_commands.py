"""`sesa rollouts`: what a person types, what they read, and what a mistake says. Two committed steps, written by hand."""

import json
import sys
from pathlib import Path

import pytest

from flows.cli import main
from sesa_core.bank.boundary import commit_segment, initialise
from sesa_core.bank.store import BankStore
from sesa_core.config.load import load_config, save_config
from sesa_core.training.records import write_trajectories
from tests.bank_support import card, embedder, segment_commit
from tests.rollouts_support import CHAD, TARGET, first_step, second_step


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """runs/first with segment 1 committed and an attempt at segment 2 in progress; runs/young has played nothing."""
    runs = tmp_path_factory.mktemp("rollouts") / "runs"
    for name in ("young", "first"):
        (runs / name).mkdir(parents=True)
        save_config(load_config(), runs / name / "config.yaml")
    with BankStore.open(runs / "first" / "bank", embedder=embedder(), run="first") as store:
        initialise(store, [card("climate")], checkpoints={}, config_hash="c")
        commit_segment(store, segment_commit(1))
    for place, step in (("00001/attempt-1", 1), ("00001/attempt-1", 2), ("00002/attempt-1", 3)):
        record = first_step() if step == 1 else second_step()
        path = runs / "first" / "segments" / place / "trajectories" / f"step-{step:05d}.parquet"
        write_trajectories(path, record)
    return runs


@pytest.fixture
def rollouts(runs, monkeypatch, capsys):
    """The command line in this process: exit code, standard output, standard error."""

    def call(*words: str, run: str = "first") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["sesa", "rollouts", *words, "--run", run, "--runs-dir", str(runs)])
        code = 0
        try:
            main()
        except SystemExit as leave:
            code = leave.code or 0
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_without_a_selection_the_newest_step_s_first_problem_is_shown(rollouts):
    code, out, _ = rollouts("show")
    assert code == 0
    assert out.startswith("problem p-1 · step 2\nquestion    Which metal is of Chad?\n")
    assert "proposer 1/0 · sample 0 · posed at step 1" in out
    assert "step 2: 1 proposals, 0 valid, 1 no_question" in out and "others: --problem ID" in out
    assert out.count("solver 2/") == 2


def test_a_selection_shows_just_that(rollouts):
    _, out, _ = rollouts("show", "--step", "1", "--role", "solver", "--sample", "2")
    assert [line.split(" ·")[0] for line in out.splitlines() if line.startswith(("solver ", "proposer "))] == ["solver 1/5"]
    _, out, _ = rollouts("show", "--trajectory", "1/1")
    assert "answer_leak" in out and "others:" not in out and "solver" not in out
    _, out, _ = rollouts("show", "--target", TARGET.target_id, "--step", "1")
    assert "problem p-1" in out and "proposals that posed no problem" in out and "dropped: search: down" in out
    _, out, _ = rollouts("show", "--problem", "p-", "--step", "1")
    assert "long texts were cut; --whole prints them in full" in out and CHAD.text.strip() not in out
    _, out, _ = rollouts("show", "--problem", "p-1", "--step", "1", "--whole")
    assert CHAD.text.strip() in out and "were cut" not in out


def test_json_is_whole(rollouts):
    _, out, _ = rollouts("show", "--step", "1", "--json")
    told = json.loads(out)
    assert (told["run"], told["step"], told["counts"], [p["problem"] for p in told["problems"]]) == ("first", 1, True, ["p-1"])
    ((game,), solver) = told["games"], told["games"][0]["rollouts"][0]
    assert [r["trajectory"] for r in game["proposals"] + game["rollouts"]] == ["1/0", "1/3", "1/4", "1/5", "1/6"]
    assert solver["turns"][0]["passages"][0]["text"] == CHAD.text and solver["reward_parts"] == "the answer is right"
    assert game["rollouts"][3]["cards"][0]["decoy"] and game["rollouts"][3]["withheld"] == ["c-metal"]


def test_only_what_a_boundary_names_is_read_unless_all_is_asked_for(rollouts):
    assert rollouts("show", "--step", "3")[2] == "error: --step: 3 is not allowed; steps 1 to 2 are stored\n"
    code, out, _ = rollouts("show", "--step", "3", "--all")
    assert code == 0 and "solver 3/1@1" in out and "attempt 1 at this step does not count: no boundary names it" in out
    assert rollouts("show", "--all", "--trajectory", "3/1@1")[0] == 0
    assert rollouts("grep", "Chad", "--step", "3:", "--all")[1].startswith("3/1@1")
    counts = [sum(row["count"] for row in json.loads(rollouts("stats", "--json", *more)[1])) for more in ((), ("--all",))]
    assert counts == [10, 13]


def test_grep_prints_one_line_a_hit_with_what_show_takes(rollouts):
    code, out, _ = rollouts("grep", "gold|salt", "--role", "solver", "--reward", ":0.5")
    assert (code, out) == (0, "1/5      step 1  solver    p-1  reward 0.00  answer: salt\n1 hit in 1 of 2 rollouts\n")
    _, out, _ = rollouts("grep", "IS GOLD", "-i", "--step", "1", "--role", "proposer")
    assert [line.split(" ")[0] for line in out.splitlines()] == ["1/0", "1/1", "2"]
    assert "  train:gold:2  reward 0.00  question: Where is gold?" in out
    _, out, _ = rollouts("grep", "know", "--ending", "malformed", "--json")
    (hit,) = json.loads(out)["hits"]
    assert (hit["trajectory"], hit["problem"], hit["sample"], hit["place"]) == ("1/4", "p-1", 1, "malformed")
    assert hit["text"][hit["start"] : hit["end"]] == "know"
    _, out, _ = rollouts("grep", "know")
    assert "\x1b" not in out, "nothing that a terminal obeys"


def test_grep_without_a_hit_exits_with_1_as_grep_does(rollouts):
    assert rollouts("grep", "zinc") == (1, "0 hits in 0 of 10 rollouts\n", "")
    code, out, _ = rollouts("grep", "zinc", "--json")
    assert (code, json.loads(out)) == (1, {"hits": [], "rollouts": 0, "searched": 10})


def test_stats_are_a_table_that_loses_nothing(rollouts):
    _, out, _ = rollouts("stats", "--by", "step")
    head, *rows = (line.split() for line in out.splitlines())
    names = [
        "step",
        "role",
        "count",
        "reward",
        "turns",
        "searches",
        "tokens",
        "valid",
        "cards",
        "questions",
        "finished",
        "dropped",
        "malformed",
    ]
    assert head == names
    assert rows[1] == ["1", "solver", "4", "0.50", "2.00", "1.00", "2.00", "50%", "1", "75%", "0%", "25%"]
    assert len(rows) == 4
    _, out, _ = rollouts("stats", "--by", "ending", "--role", "solver", "--step", "1")
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [["finished", "solver", "3"], ["malformed", "solver", "1"]]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["show", "--step", "9"], "--step: 9 is not allowed; steps 1 to 2 are stored"),
        (["show", "--problem", "p-2"], "--problem: 'p-2' is not allowed; there is no such problem in the run; did you mean p-1?"),
        (["show", "--target", "x", "--step", "1"], "there is no such target in step 1; `sesa rollouts grep` prints ids"),
        (["show", "--problem", "p-1", "--target", "x"], "--problem is given too"),
        (["show", "--trajectory", "p-1"], "write step/number"),
        (["show", "--trajectory", "1/7"], "step 1 has 0 to 6"),
        (["show", "--trajectory", "9/0"], "steps 1 to 2 are stored"),
        (["show", "--trajectory", "1/0", "--step", "2"], "--step says 2"),
        (["show", "--trajectory", "3/0@1"], "read with --all"),
        (["show", "--sample", "4"], "--sample: 4 is not allowed; the solver's rollouts are 0, 1"),
        (["show", "--trajectory", "1/0", "--role", "solver"], "--role: 'solver' is not allowed"),
        (["show", "--role", "judge"], "--role: 'judge' is not allowed; the values are proposer, solver"),
        (["grep", "("], "PATTERN: '(' is not allowed; it is not a regular expression: missing )"),
        (["grep", "a", "--step", "3:1"], "--step: '3:1' is not allowed; write one number or a range"),
        (["grep", "a", "--step", "7:"], "--step: '7:' is not allowed; steps 1 to 2 are stored"),
        (["grep", "a", "--reward", "good"], "--reward: 'good' is not allowed; write one number or a range"),
        (["grep", "a", "--ending", "done"], "the values are finished, malformed, turn_limit, truncated, dropped"),
        (["stats", "--by", "color"], "--by: 'color' is not allowed; the values are step, segment, role, hops, ending"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(rollouts, words, says):
    code, out, err = rollouts(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1 and says in err


def test_a_run_without_rollouts_says_so(rollouts):
    assert rollouts("stats", run="nope")[2].startswith("error: there is no run 'nope'")
    assert "no segment of it is committed; --all also reads" in rollouts("stats", run="young")[2]
    assert rollouts("stats", "--all", run="young") == (2, "", "error: young has no rollouts to read: it has played no step\n")


def test_a_file_that_was_cut_is_one_line(rollouts, runs):
    path = next((runs / "first").rglob("step-00003.parquet"))
    path.write_bytes(path.read_bytes()[:300])
    code, out, err = rollouts("show", "--all")
    assert (code, out) == (2, "") and err.startswith(f"error: {path} cannot be read (") and err.count("\n") == 1
