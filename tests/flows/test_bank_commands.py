"""`sesa bank`: what a person types, what they read, and what a mistake says. One real bank in a run's folder."""

import io
import json
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from flows.cli import main
from sesa_core.bank.boundary import commit_segment, initialise
from sesa_core.bank.store import BankStore
from sesa_core.cards.schema import CardState, Origin
from sesa_core.config.load import load_config, save_config
from tests.bank_support import card, draft, embedder, failure, reply, segment_commit, use
from tests.flows.conftest import sesa


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def data(self):
        return json.loads(self.out)


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    """runs/first with a bank at boundary 1; climate helped at step 3."""
    runs = tmp_path_factory.mktemp("commands") / "runs"
    (runs / "first").mkdir(parents=True)
    save_config(load_config(), runs / "first" / "config.yaml")
    start = [card("anthem", card_id="seed-anthem", origin=Origin.SEED), card("climate"), card("religion", state=CardState.CANDIDATE)]
    with BankStore.open(runs / "first" / "bank", embedder=embedder(), run="first") as store:
        initialise(store, start, checkpoints={}, config_hash="c")
        uses, failures = [use("card-climate", "p1", (1.0,), step=3)], [failure("f", "currency")]
        commit_segment(store, segment_commit(1, uses=uses, failures=failures, replies=[reply("f", draft("currency"))]))
    return runs


@pytest.fixture
def runs(template, tmp_path) -> Path:
    shutil.copytree(template, tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture
def bank(runs, monkeypatch):
    """The command line in this process (a process of its own for every call costs seconds): `bank("list", "--json")`."""

    def call(*words: str | Path, place: tuple[str, ...] = ("--run", "first", "--runs-dir", str(runs)), answer: str = "") -> Said:
        monkeypatch.setattr(sys, "argv", ["sesa", "bank", *map(str, words), *place])
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        out, err, code = io.StringIO(), io.StringIO(), 0
        with redirect_stdout(out), redirect_stderr(err):
            try:
                main()
            except SystemExit as leave:
                code = leave.code or 0
        return Said(code, out.getvalue(), err.getvalue())

    return call


def ids(said: Said) -> list[str]:
    return [row["card"] for row in said.data]


def test_reading_commands_give_data_at_any_boundary(bank):
    assert {"card-climate", "card-religion", "seed-anthem"} < set(ids(bank("list", "--json")))
    assert ids(bank("list", "--state", "candidate", "--json")) == ["card-religion"]
    assert ids(bank("list", "--origin", "seed", "--json")) == ["seed-anthem"]
    assert ids(bank("list", "--category", "temporal", "--json")) == []
    for at in ("0", "first.b-00000", "step:1"):
        assert ids(bank("list", "--at", at, "--json")) == ["card-climate", "card-religion", "seed-anthem"]
    assert bank("show", "card-climate", "--json").data["helpful_count"] == 1
    assert bank("show", "card-climate", "--at", "0", "--json").data["helpful_count"] == 0
    found = bank("search", "What is the climate of Spain?", "--top", "1", "--json").data
    assert [(r["card"], r["place"], r["floor"]) for r in found] == [("card-climate", 1, 0.32)]
    assert [(v["boundary"], v["kind"], v["cards"], v["readable"]) for v in bank("versions", "--json").data] == [
        (0, "start", 3, True),
        (1, "segment", 4, True),
    ]
    assert [c["card_id"] for c in bank("diff", "0", "1", "--json").data["changed"]] == ["card-climate"]
    assert [h["what"] for h in bank("history", "card-climate", "--json").data] == ["added", "use"]
    assert bank("tombstones", "--json").data == []
    assert bank("stats", "--json").data["bank"]["helped"] == 1
    assert [(r["boundary"], r["helped"], r["uses"]) for r in bank("stats", "--over-time", "--json").data] == [(0, 0, 0), (1, 1, 1)]
    checked = bank("verify", "--json").data
    assert (checked["agrees"], checked["boundaries"], checked["cards"], checked["difference"]) == (True, 2, 4, None)


def test_reading_commands_speak_to_people(bank):
    said = "".join(
        bank(*words).out
        for words in (
            *(["list"], ["show", "card-climate"], ["search", "What is the climate of Spain?"], ["versions"], ["diff", "0"]),
            *(["history", "card-climate"], ["tombstones"], ["stats"], ["tag"], ["diff", "1", "1"], ["verify"]),
        )
    )
    for words in ("below the floor of 0.32", "first.b-00001", "helpful_count", "outcome: helpful", "no card has left the bank"):
        assert words in said
    assert "2 boundaries agree: 4 cards, 0 tombstones, 5 events" in said
    for words in ("states: 3 active, 1 candidate", "no boundary has a name", "the two boundaries hold the same"):
        assert words in said


def test_a_list_tells_what_was_seen_at_a_card_s_uses_from_what_seeing_it_changed(bank, tmp_path):
    """Solved at every problem says little: climate's one was solved by those that saw it alone, the seed's twelve without it alone.

    By hand: four against four rollouts weigh 2, the prior 4; 2 / (4 + 2) = 0.33 and -24 / (4 + 24) = -0.86.
    """
    seed, ones, none = card("anthem", card_id="seed-anthem", origin=Origin.SEED), (1.0,) * 4, (0.0,) * 4
    uses = [use("card-climate", "p", ones, without=none), *(use("seed-anthem", f"q{i}", none, without=ones) for i in range(12))]
    uses.append(use("card-religion", "r", ones))
    with BankStore.open(tmp_path / "other", embedder=embedder(), run="first") as store:
        initialise(store, [seed, card("climate"), card("religion")], checkpoints={}, config_hash="c")
        commit_segment(store, segment_commit(1, uses=uses, bank=load_config().bank))
    other = ("--bank", str(tmp_path / "other"))
    earned = {r.pop("card"): r for r in bank("list", "--json", place=other).data}
    columns = ("uses", "helpful", "hurt", "uplift", "at_most")
    assert [earned["card-climate"][c] for c in columns] == [1, 1, 0, pytest.approx(1 / 3), 1.0]
    assert [earned["card-religion"][c] for c in columns] == [1, 1, 0, None, None], "nothing was compared"
    *seen, at_most = (earned["seed-anthem"][c] for c in columns)
    assert seen == [12, 0, 12, pytest.approx(-24 / 28)] and -0.86 < at_most < 0, "what the default evicts for, seeds excepted"
    said = bank("list", place=other).out
    assert "+0.33" in said and "-0.86" in said and "97 % confidence" in said and "uses      problems at which the card was shown" in said
    assert "cards     those that are there" in bank("stats", place=other).out


def test_every_change_is_a_boundary_that_says_who_and_why(bank):
    said = bank("suspend", "card-climate", "--by", "ada", "--why", "a trial")
    assert (said.code, said.err) == (0, "")
    assert said.out == "boundary 2 (first.b-00002): suspended card-climate\n4 cards, 2 active\n"
    assert bank("activate", "card-climate", "--json").data["kind"] == "person"
    assert bank("approve", "card-religion", "--json").data["cards"] == {"active": 4, "total": 4}
    edited = bank("edit", "card-climate", "--set", "trigger_keywords=[climate, weather]", "--by", "ada", "--json").data
    assert edited["changed"] == [{"card_id": "card-climate", "change": "edited"}]
    assert bank("evict", "card-climate", "--why", "wrong", "--json").data["evicted"][0]["reason"] == "person: wrong"
    assert [(t["card"], t["reason"]) for t in bank("tombstones", "--json").data] == [("card-climate", "person: wrong")]
    assert bank("restore", "card-climate", "--json").data["boundary_id"] == 7
    assert bank("show", "card-climate", "--json").data["helpful_count"] == 0
    assert bank("restore", "--to", "step:1", "--json").data["details"] == {"to": 0}
    kinds = [(v["kind"], v["by"], v["why"]) for v in bank("versions", "--json").data]
    assert kinds[2] == ("person", "ada", "a trial") and kinds[-1][0] == "restore" and kinds[-1][1] != ""


def test_fields_can_come_from_a_file(bank, tmp_path):
    (tmp_path / "fields.yaml").write_text("dataset: nq\nwhy: it was too general\n")
    assert bank("edit", "card-climate", "--file", tmp_path / "fields.yaml", "--set", "task_family=qa").code == 0
    shown = bank("show", "card-climate", "--json").data
    assert (shown["dataset"], shown["task_family"], shown["why"]) == ("nq", "qa", "it was too general")


def test_cards_travel_to_a_bank_outside_any_run(bank, tmp_path):
    for name in ("cards.jsonl", "cards.parquet", "skills"):
        assert bank("export", tmp_path / name, "--json").data["records"] == 4
    shared = ("--bank", str(tmp_path / "shared"))
    said = bank("import", tmp_path / "cards.jsonl", place=shared)
    assert said.out.startswith("4 cards and 0 tombstones taken in; skipped: none\nboundary 1 ")
    again = bank("import", tmp_path / "skills", "--json", place=shared).data
    assert (again["added"], again["skipped"], again["boundary"]) == ([], {"id is there": 4}, None)
    assert "nothing is new" in bank("import", tmp_path / "cards.parquet", place=shared).out
    assert len(bank("list", "--json", place=shared).data) == 4
    refused = bank("list", place=(*shared, "--run", "first"))
    assert (refused.code, refused.err) == (2, f"error: --bank: '{tmp_path / 'shared'}' is not allowed; give --bank or --run, not both\n")


def test_a_named_boundary_outlives_compaction(bank):
    bank("suspend", "seed-anthem")
    bank("activate", "seed-anthem")
    assert bank("tag", "dear", "--at", "1", "--why", "best", "--json").data[0]["boundary_id"] == 1
    done = bank("compact", "--keep", "1", "--json").data
    assert (done["boundary"], done["released"]) == (4, [2, 3])
    assert len(bank("list", "--at", "dear", "--json").data) == 4
    refused = bank("list", "--at", "2")
    assert refused.code == 2 and "let go by the compaction at boundary 4" in refused.err
    assert bank("tag", "dear", "--remove", "--json").data == []
    assert "cannot be read any more: 1, 4" in bank("compact", "--keep", "1").out


def test_a_purge_asks_first(bank):
    refused = bank("purge", "card-climate", answer="n\n")
    assert refused.code == 2 and refused.err.splitlines()[-1].endswith("nothing was purged; confirm, or give --yes")
    assert bank("purge", "card-climate").code == 2, "nobody answers"
    assert len(bank("versions", "--json").data) == 2
    said = bank("purge", "card-climate", answer="y\n")
    assert said.out.endswith("card-climate is purged; 2 earlier boundaries were written again without it\n")
    assert "card-climate" not in ids(bank("list", "--at", "0", "--json"))
    assert bank("history", "card-climate", "--json").data[-1]["what"] == "purged"
    assert bank("purge", "card-climate", "--yes", "--json").data["boundary"] is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["show", "card-climat"], "did you mean card-climate?"),
        (["list", "--state", "foo"], "--state: 'foo' is not allowed; the values are candidate, active, suspended"),
        (["list", "--origin", "foo"], "--origin: 'foo' is not allowed; the values are seed, mined, distilled, person"),
        (["list", "--category", "foo"], "the values are multi_hop_chain, entity_disambiguation, "),
        (["verify", "--at", "nope"], "boundaries are 0 to 1"),
        (["list", "--at", "nope"], "boundaries are 0 to 1"),
        (["history", "nothing"], "there is no card 'nothing'"),
        (["suspend", "card-religio"], "did you mean card-religion?"),
        (["activate", "card-climate"], "card-climate is active: it cannot be activated"),
        (["evict", "seed-anthem"], "suspend it instead"),
        (["edit", "card-climate"], "give at least one field"),
        (["edit", "card-climate", "--set", "pattern"], "write field=value"),
        (["edit", "card-climate", "--set", "pattern=[a"], "it is not YAML"),
        (["edit", "card-climate", "--set", "category=ninth"], "card card-climate: category: 'ninth' is not allowed"),
        (["edit", "card-climate", "--file", "nowhere.yaml"], "nowhere.yaml"),
        (["restore"], "name one card"),
        (["restore", "card-climate", "--to", "0"], "name one card"),
        (["restore", "card-climate"], "is in the bank"),
        (["tag", "7"], "tag: '7' is not allowed"),
        (["tag", "x", "--remove"], "there are no tags"),
        (["import", "nowhere.jsonl"], "there is no file nowhere.jsonl"),
        (["export", "cards.txt"], "the formats are jsonl, parquet, skills"),
        (["purge", "card-nope", "--yes"], "there is no card 'card-nope'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2_and_changes_nothing(bank, runs, words, says):
    said = bank(*words)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: ") and said.err.count("\n") == 1 and says in said.err
    with BankStore.open(runs / "first" / "bank", embedder=embedder(), write=False) as store:
        assert len(store.boundaries()) == 2


def write_boundary(runs: Path, **values) -> None:
    with BankStore.open(runs / "first" / "bank", embedder=embedder(), run="first") as store:
        store.table("boundaries").update(where="boundary_id = 1", values=values)


def cut(runs: Path, table: str) -> None:
    for file in (runs / "first" / "bank" / f"{table}.lance" / "data").glob("*"):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda runs: write_boundary(runs, embedder="e5-base-v2"), "was written with embedder e5-base-v2 (256 dimensions), not wordllama"),
        (lambda runs: write_boundary(runs, dimension=768), "(768 dimensions), not wordllama"),
        (lambda runs: write_boundary(runs, schema_version=9), "has schema 9, this SESA knows"),
        (lambda runs: cut(runs, "cards"), "table cards of first.b-00001 cannot be read"),
        (lambda runs: cut(runs, "boundaries"), "table boundaries cannot be read"),
    ],
    ids=["embedder", "dimension", "schema", "cards", "boundaries"],
)
@pytest.mark.parametrize("words", [("list",), ("suspend", "card-climate")], ids=["reading", "writing"])
def test_a_bank_that_cannot_be_read_is_one_line_and_exit_2(bank, runs, harm, says, words):
    harm(runs)
    said = bank(*words)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: ") and said.err.count("\n") == 1 and says in said.err


def test_verify_names_the_first_difference_and_exits_with_1(bank, runs):
    with BankStore.open(runs / "first" / "bank", embedder=embedder(), run="first") as store:
        store.table("cards").update(where="card_id = 'card-climate'", values={"helpful_count": 0})
        ahead = bank("verify")
        pins = json.dumps(dict(store.last_boundary().versions) | {"cards": store.table("cards").version})
        store.table("boundaries").update(where="boundary_id = 1", values={"versions": pins})
    assert ahead.code == 0 and ahead.out.endswith(
        "not committed: rows of cards; a run is at work, or was killed and the next writer takes them back\n"
    )
    said = bank("verify")
    named = "card card-climate: helpful_count is 0 in the table, 1 by the ledger"
    assert (said.code, said.out) == (1, f"boundary 1 (first.b-00001), ledger: {named}\n")
    assert (bank("verify", "--json").code, bank("verify", "--json").data["difference"]["what"]) == (1, named)
    assert bank("verify", "--at", "0").code == 0
    cut(runs, "cards")
    assert "pins: " in bank("verify").out, "what cannot be read is a finding of this command"


def test_a_bank_that_is_being_written_says_so_and_can_still_be_read(bank, runs):
    with BankStore.open(runs / "first" / "bank", embedder=embedder(), run="first", owner="process 7 on elsewhere"):
        refused = bank("suspend", "card-climate")
        assert refused.code == 2
        assert "is being written by process 7 on elsewhere (run first); wait for it to end, or read only" in refused.err
        assert len(bank("list", "--json").data) == 4


def test_the_real_command_prints_nothing_but_its_answer(runs):
    """In a process of its own, where libraries may chatter."""
    done = sesa("bank", "suspend", "card-climate", "--runs-dir", runs, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["boundary_id"] == 2
