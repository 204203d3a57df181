"""A run over a corpus of one's own: trained, measured, gone on with, and what is refused before it begins."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from flows.composition import build_verifier, check
from flows.doctor import examine
from flows.form import TrainForm
from flows.worlds import build_world, held_out_questions, world_parts
from sesa_core.config.load import load_config
from sesa_core.errors import ConfigError
from sesa_core.rng import stream
from sesa_core.training.run_folder import RunFolder, runs
from tests.core.rollout.test_loop import one_search, table
from tests.flows.conftest import PATIENCE_S, sesa, settings, told

pytestmark = pytest.mark.timeout(3 * PATIENCE_S)

README = Path(__file__).parents[2] / "README.md"
LANDS = ("Arlenia", "Borvik", "Celmora", "Dunrath", "Eskilia", "Ferrona", "Gorland", "Hestria", "Ilmenia", "Jorvia")
CAPITALS = ("Aunton", "Braeburg", "Colemar", "Dornfeld", "Eskport", "Falford", "Gwenford", "Hullby", "Innsworth", "Juraville")
CURRENCIES = ("Ducat", "Florin", "Groat", "Obol", "Thaler", "Guilder", "Mark", "Penny", "Sequin", "Zecchin")
FACTS = {"capital": CAPITALS, "currency": CURRENCIES}
TRAINED = 7  # lands that targets are of; the others are asked about


def lines(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """Thirty passages about ten lands that do not exist, in the form that the tiny policy was made for."""
    folder = tmp_path_factory.mktemp("corpus")
    passages = []
    for land, capital, currency in zip(LANDS, CAPITALS, CURRENCIES, strict=True):
        passages += [f"{land} government\ncapital: {capital}.", f"{land} economy\ncurrency: {currency}.", f"{land} places\ncity {capital}."]
    asked = [(f"What is the {r} of {LANDS[i]}?", FACTS[r][i]) for r in FACTS for i in range(TRAINED, len(LANDS))]
    (folder / "corpus.jsonl").write_text(lines({"id": f"p{i:02d}", "contents": text} for i, text in enumerate(passages)))
    (folder / "targets.jsonl").write_text(
        lines({"answer": a, "aliases": [], "hops": 1, "relation": r} for r in FACTS for a in FACTS[r][:TRAINED])
    )
    (folder / "questions.jsonl").write_text(lines({"question": q, "golden_answers": [a]} for q, a in asked))
    return folder


def over(folder: Path, *more: str) -> list[str]:
    return ["world.kind=files", f"world.path={folder}", "validation.verifier=solver", "evaluation.questions=6", *more]


@pytest.fixture(scope="module")
def finished(corpus, runs_dir) -> RunFolder:
    """One segment of two steps, with the bank off in its evaluations."""
    small = ("selfplay.segments=1", "selfplay.targets=4", "selfplay.problems=6", "evaluation.samples=0", "evaluation.arms=[off]")
    done = sesa("run", "--name", "own", "--runs-dir", runs_dir, *settings(*over(corpus, *small)))
    assert done.returncode == 0, done.stdout + done.stderr
    return RunFolder(runs_dir / "own")


def test_both_roles_play_over_the_passages_and_are_measured_on_the_questions(finished, corpus):
    report = finished.report()
    assert report["questions"]["posed"] == 2 * 4 * 3
    assert report["questions"]["valid"] > 0, "the solver itself verified them"
    assert set(report["evaluations"]["1"]["arms"]) == {"off"} and report["evaluations"]["1"]["questions"] == 6
    where = ("--run", "own", "--runs-dir", finished.path.parent, "--json")
    hits = json.loads(told("rollouts", "grep", " (government|economy)$", *where))["hits"]
    shown = {hit["role"] for hit in hits if hit["place"].startswith("passage")}
    assert shown == {"proposer", "solver"}, "both were shown passages of this corpus"


@pytest.mark.long  # 46 s: the command loads everything once more
def test_a_run_says_what_its_world_held_and_is_measured_again_over_it(finished, corpus):
    config = finished.config()
    assert config.world.fingerprint == build_world(load_config(overrides=over(corpus))).fingerprint
    again = ("--set", "evaluation.arms=[off,on]", "--set", "evaluation.questions=4")
    done = sesa("eval", "--run", "own", "--runs-dir", finished.path.parent, *again, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    measured = json.loads(done.stdout)
    assert set(measured["arms"]) == {"off", "on"} and measured["questions"] == 4
    assert measured["arms"]["off"]["outcomes"] == finished.report()["evaluations"]["1"]["arms"]["off"]["outcomes"][:4]
    assert (measured["arms"]["off"]["by_hops"], measured["arms"]["off"]["by_kind"]) == ({}, {}), "nobody counted hops"


@pytest.fixture
def changed(corpus, tmp_path) -> Path:
    """A copy of the corpus to be changed."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for file in corpus.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.mark.parametrize(
    ("name", "row", "says"),
    [
        ("corpus", '{"id": "p31"}', 'corpus.jsonl, line 31: \'{"id": "p31"}\' is not allowed; its `contents` are missing'),
        ("targets", '{"answer": "Aunton", "hops": 1}', 'it has no `aliases`: list other names of the answer, or write "aliases": []'),
    ],
)
def test_a_wrong_row_is_one_line_exit_2_and_no_run(name, row, says, changed, tmp_path):
    with (changed / f"{name}.jsonl").open("a") as file:
        file.write(row + "\n")
    done = sesa("run", "--runs-dir", tmp_path / "runs", *settings(*over(changed)))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {changed / name}.jsonl, line ") and done.stderr.count("\n") == 1
    assert says in done.stderr
    assert not (tmp_path / "runs").exists()


def test_a_run_is_not_resumed_over_other_files(changed, tmp_path):
    run = TrainForm(name="begun", runs_dir=str(tmp_path / "runs"), overrides=over(changed)).create()
    build_world(run.config())
    (changed / "questions.jsonl").write_text('{"question": "What is the capital of Chad?", "golden_answers": ["N\'Djamena"]}\n')
    with pytest.raises(ConfigError, match=r"\(questions changed\): put that back") as refused:
        build_world(run.config())
    assert refused.value.key == "world.fingerprint"
    taken = load_config(file=run.config_file, overrides=["world.fingerprint=null"])
    assert held_out_questions(taken, build_world(taken)) == {"what is capital of chad"}


@pytest.mark.parametrize(
    ("setting", "key", "says"),
    [
        ("validation.verifier=world", "validation.verifier", "give solver or judge"),
        ("targets.hops=[2,3]", "targets.hops", "the targets of this world have 1"),
        ("evaluation.questions=7", "evaluation.questions", "has 6 of the test split; ask for at most that"),
        ("world.path=null", "world.path", "give a folder with corpus.jsonl, targets.jsonl, questions.jsonl"),
        ("world.path=/nowhere", "world.path", "there is no such folder"),
    ],
)
def test_settings_that_do_not_fit_the_files_are_refused_before_there_is_a_run(setting, key, says, corpus, tmp_path):
    with pytest.raises(ConfigError, match=re.escape(says)) as refused:
        TrainForm(overrides=over(corpus, setting), runs_dir=str(tmp_path / "runs")).create()
    assert refused.value.key == key
    assert not runs(tmp_path / "runs")


def test_no_verifier_is_built_that_asks_the_files_for_facts(corpus):
    config = load_config(overrides=over(corpus, "validation.verifier=world"))
    with pytest.raises(ConfigError, match="holds passages, not facts"):
        build_verifier(config, build_world(config), table(one_search), None)


def test_targets_are_drawn_by_relation_and_all_questions_are_held_out(corpus):
    config = load_config(overrides=over(corpus, "evaluation.questions=1"))
    parts = world_parts(config, build_world(config))
    drawn = parts.fresh_state().sampler.draw(14, stream(0))
    assert {(t.relation, t.answer) for t in drawn} == {(r, a) for r in FACTS for a in FACTS[r][:TRAINED]}
    assert len(parts.questions) == 1 and len(parts.held_out) == 6
    assert parts.names == (), "a card's check then looks for names in the question itself"


def test_doctor_counts_the_files_and_names_what_is_wrong_in_them(changed, runs_dir):
    def told_of(what: str):
        return next(f for f in examine(load_config(overrides=over(changed), values={"runs_dir": str(runs_dir)})) if f.what == what)

    assert (told_of("world").ok, told_of("world").detail) == (True, "30 passages, 14 targets, 6 questions")
    (changed / "targets.jsonl").write_text("{\n")
    assert not told_of("world").ok and "targets.jsonl, line 1" in told_of("world").detail


def test_the_readmes_example_can_be_run(tmp_path, monkeypatch):
    section = README.read_text().partition("## Your own corpus")[2]
    *making, running = section.split("```")[1].strip().splitlines()
    subprocess.run(["/bin/sh", "-euc", "\n".join(making)], cwd=tmp_path, check=True)
    monkeypatch.chdir(tmp_path)
    command = shlex.split(running)
    assert command[:2] == ["sesa", "run"] and set(command[2::2]) == {"--set"}
    config = load_config(overrides=command[3::2])
    check(config)
    (passage,) = build_world(config).documents
    assert (passage.title, passage.text) == ("Chad economy", "currency: CFA franc. industry: oil.")
