"""Compaction, purge, an older schema, damage: the bank stays whole, and what must not be kept is gone."""

import shutil
from pathlib import Path

import lancedb
import pyarrow as pa
import pytest

from sesa_core.bank import migrations, tables
from sesa_core.bank.bank import Bank
from sesa_core.bank.boundary import commit_segment, initialise, recover
from sesa_core.bank.compaction import compact_bank
from sesa_core.bank.edition import Person
from sesa_core.bank.purge import purge_card
from sesa_core.bank.store import BankStore
from sesa_core.cards.schema import SCHEMA_VERSION, Origin
from sesa_core.errors import BankError, BankIncompatible, ConfigError, UserError
from tests.bank_support import MODEL, PROMPT, card, draft, embedder, failure, reply, segment_commit, shown, use

SECRET = "Quagmireville"
PERSON = Person("ada", "a test")


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """0 start · 1 a card with the secret is distilled · 2 used and shown at a failure · 3 evicted · 4 restored
    with its counters · 5 edited."""
    folder = tmp_path_factory.mktemp("kept") / "bank"
    with Bank.open(folder, embedder(), by="ada", run="r") as bank:
        store = bank.store
        initialise(store, [card("anthem", card_id="seed-anthem", origin=Origin.SEED), card("climate")], checkpoints={}, config_hash="c")
        lesson = reply("f", draft("currency", common_confusion=f"Taken for {SECRET}."))
        store.store_distillation(lesson)
        store.store_distillation(reply("other", draft("religion")))
        failures = [failure("f", "currency", question=f"What is spent in {SECRET.lower()}?", answer=SECRET)]
        report = commit_segment(store, segment_commit(1, failures=failures, replies=[lesson]))
        assert len(report.added) == 1, report.refused
        secret = secret_id(bank)
        uses = [use(secret, "p1", (1.0,), step=11)]
        seen = failure("g", "religion", shown_cards=(shown(secret),))
        told = type(shown(secret))(secret, 0.5, f"[S1] Taken for {SECRET}.")
        commit_segment(store, segment_commit(2, uses=uses, failures=[type(seen)(**{**seen.__dict__, "shown_cards": (told,)})]))
        bank.evict([secret])
        bank.restore_card(secret, keep_counters=True)
        bank.edit(secret, {"pattern": f"Asked for the money of {SECRET}."})
    return folder


def secret_id(bank: Bank) -> str:
    return next(c.card_id for c in bank.cards() if c.judge_model)


def contents(bank: Bank, *boundaries: int) -> dict[int, str]:
    return {b: bank.store.content_hash(b) for b in boundaries}


def holds(folder: Path, text: str) -> list[str]:
    """Files of the bank in which the text can be read, however Lance laid it out."""
    return [p.name for p in folder.rglob("*") if p.is_file() and text.encode().lower() in p.read_bytes().lower()]


# -- compaction


def test_compaction_changes_no_boundary(bank):
    before = contents(bank, *range(6))
    files = sum(p.is_file() for p in Path(bank.store.uri).rglob("*"))
    done = bank.compact("weekly")
    assert (done.report.kind, done.report.boundary_id, done.released, done.report.by) == ("compact", 6, (), "ada")
    assert done.freed_bytes > 0 and sum(p.is_file() for p in Path(bank.store.uri).rglob("*")) < files
    assert contents(bank, *range(6)) == before
    for name in ("cards", "tombstones", "failures"):
        assert bank.store.pinned(name).equals(bank.store.pinned(name, 5)), name
    assert recover(bank.store) == [], "the compacted tables are what the row pins"
    bank.suspend(["seed-anthem"])
    assert bank.boundaries()[-1].boundary_id == 7


def test_compaction_keeps_what_has_a_name_and_says_what_it_let_go(bank):
    bank.tag("dear", 2)
    before = contents(bank, 0, 2, 5)
    done = bank.compact(keep=2)
    assert done.released == (1, 3, 4)
    assert contents(bank, 0, 2, 5) == before and len(bank.cards("dear")) == 3
    for at in (3, "r.b-00003"):
        with pytest.raises(ConfigError, match="boundary 3 was let go by the compaction at boundary 6; .* are 0, 2, 5, 6"):
            bank.cards(at)
    bank.untag("dear")
    assert bank.compact(keep=1).released == (2, 5, 6)
    assert [len(bank.cards(at)) for at in (0, 7)] == [2, 3]
    assert [b.boundary_id for b in bank.boundaries()] == list(range(8)), "rows stay, versions go"


def test_a_tag_of_a_killed_writer_holds_nothing_back(bank):
    table = bank.store.table("cards")
    table.tags.create("r.b-00099", 2)
    table.tags.delete("r.b-00004")
    before = contents(bank, 4)
    bank.compact()
    assert "r.b-00099" not in table.tags.list() and "r.b-00004" in table.tags.list()
    assert contents(bank, 4) == before


def test_compaction_keeps_the_newest_at_least(bank):
    with pytest.raises(ConfigError, match="keep: 0"):
        bank.compact(keep=0)


# -- purge


def test_a_purged_card_is_in_no_file_of_the_bank(bank):
    folder = Path(bank.store.uri)
    secret = secret_id(bank)
    bank.tag("old", 1)
    before = contents(bank, 0)
    assert holds(folder, SECRET) and bank.store.stored_distillations(["f"], PROMPT, MODEL)
    done = bank.purge(secret, why="names a place")
    assert (done.report.kind, done.rewritten) == ("purge", (1, 2, 3, 4, 5))
    assert holds(folder, SECRET) == []
    assert contents(bank, 0) == before, "a boundary that held nothing of it is untouched"
    for at in (1, 2, 3, 4, 5, 6, "old"):
        assert [c.card_id for c in bank.cards(at)] == ["card-climate", "seed-anthem"]
        assert bank.tombstones(at) == []
    assert bank.store.stored_distillations(["f"], PROMPT, MODEL) == []
    assert len(bank.store.stored_distillations(["other"], PROMPT, MODEL)) == 1, "other replies stay"
    records = {r.failure.failure_id: r for r in bank.store.read_failures()}
    assert (records["f"].failure.question, records["f"].state, records["f"].reason) == ("", "consumed", "purged")
    assert records["g"].failure.question != "" and [c.text for c in records["g"].failure.shown_cards] == [""]
    told = bank.history(secret)
    assert [t["what"] for t in told] == ["added", "use", "evicted", "restored", "edited", "purged"]
    assert told[0]["details"] == {"purged": True} and (told[-1]["by"], told[-1]["why"]) == ("ada", "names a place")


def test_life_goes_on_after_a_purge(bank):
    secret = secret_id(bank)
    bank.purge(secret)
    assert recover(bank.store) == []
    bank.suspend(["seed-anthem"])
    bank.restore_to(2)
    assert [c.card_id for c in bank.cards()] == ["card-climate", "seed-anthem"], "an earlier boundary does not bring it back"
    commit_segment(bank.store, segment_commit(3, failures=[failure("h", "religion")]))
    with pytest.raises(UserError, match="no card 'card-nope'"):
        bank.purge("card-nope")
    assert len(bank.boundaries()) == 10
    assert bank.purge(secret).report is None, "it is gone already: only files are looked after"


# -- a writer that stops between two writes


class Killed(Exception):
    """Stands for SIGKILL: nothing of the writer runs after it. `test_boundary_kills` kills for real."""


WRITES = {
    "suspend": ["cards", "events"],
    "judge": ["failures", "cards", "events"],
    "restore": ["cards", "events", "removals:tombstones", "removals:failures"],
    "compact": ["compact:cards", "compact:events", "compact:tombstones", "compact:failures", "events"],
    "purge": ["cards", "events", "tombstones", "failures", "event"],
}
TAGS = [f"tag:{name}" for name in tables.PINNED]


def do(bank: Bank, what: str, after_write) -> None:
    from sesa_core.bank import operations
    from sesa_core.bank.boundary import commit_judged, commit_plan
    from sesa_core.bank.edition import plan_edition
    from sesa_core.bank.restoration import restore_to
    from sesa_core.bank.segment import JudgeCommit

    store = bank.store
    if what == "compact":
        compact_bank(store, PERSON, 2, after_write=after_write)
    elif what == "judge":
        commit_judged(store, JudgeCommit(replies=[reply("g", draft("religion"))], by="ada"), after_write=after_write)
    elif what == "purge":
        purge_card(store, secret_id(bank), PERSON, after_write=after_write)
    else:
        recover(store)
        state = store.read_state()
        if what == "suspend":
            edition = operations.suspend(state, ["seed-anthem"], PERSON)
        else:
            failures = tuple({r.failure.failure_id: r for r in store.read_failures(b)} for b in (None, 1))
            edition = restore_to(state, store.read_state(1), failures, 1, PERSON)
        commit_plan(store, plan_edition(state, edition, max_cards=800, dimension=256), after_write=after_write)


@pytest.mark.parametrize("what", WRITES)
def test_every_kind_of_boundary_is_there_in_full_or_not_at_all(template, tmp_path, what):
    def die_after(count: int):
        def after_write(name: str) -> None:
            written.append(name)
            if len(written) == count:
                raise Killed

        return after_write

    written: list[str] = []
    shutil.copytree(template, tmp_path / "whole")
    with Bank.open(tmp_path / "whole", embedder(), by="ada") as bank:
        before = bank.store.content_hash()
        do(bank, what, written.append)
        after = bank.store.content_hash()
    names = list(written)
    assert [n for n in names if not n.startswith("tag:")] == [*WRITES[what], "boundary"] and names[-5:] == [*TAGS, "boundary"]
    data = len(WRITES[what])
    for count in sorted({1, data, data + 2, len(names) - 1}):  # after the first and the last of the rows, amid and after the tags
        folder = tmp_path / f"killed-{count}"
        shutil.copytree(template, folder)
        written.clear()
        with Bank.open(folder, embedder(), by="ada") as bank, pytest.raises(Killed):
            do(bank, what, die_after(count))
        with Bank.open(folder, embedder(), by="ada") as bank:
            assert (bank.store.content_hash(), len(bank.boundaries())) == (before, 6), names[count - 1]
            do(bank, what, lambda name: None)
            assert (bank.store.content_hash(), len(bank.boundaries())) == (after, 7), names[count - 1]


def test_a_purge_that_died_after_its_row_is_finished_by_the_next(bank, monkeypatch):
    """The row is the atomic point; what is left then is old files."""
    secret, folder = secret_id(bank), Path(bank.store.uri)

    def die(name: str) -> None:
        if name == "boundary":
            raise Killed

    with pytest.raises(Killed):
        purge_card(bank.store, secret, PERSON, after_write=die)
    assert holds(folder, SECRET) and secret not in [c.card_id for c in bank.cards(5)]
    assert bank.purge(secret).freed_bytes > 0
    assert holds(folder, SECRET) == []


# -- an older schema


def older(name: str, rows: list[dict]) -> list[dict]:
    """The made-up step from schema 0, in which a card had one counter `uses` and a failure no reason."""
    if name == "cards":
        return [{k: v for k, v in r.items() if k != "uses"} | {"retrieved_count": r["uses"]} for r in rows]
    return [r | {"reason": ""} for r in rows] if name == "failures" else rows


@pytest.fixture
def old_bank(template, tmp_path):
    """The template as schema 0 would have written it: its newest boundary's tables rewritten with the older columns."""
    folder = tmp_path / "old"
    shutil.copytree(template, folder)
    with BankStore.open(folder, embedder=embedder()) as store:
        versions = dict(store.last_boundary().versions)
        today = store.pinned("cards")
        cards = today.rename_columns(["uses" if n == "retrieved_count" else n for n in today.schema.names])
        versions["cards"] = store.table("cards").add(cards, mode="overwrite").version
        versions["failures"] = store.table("failures").add(store.pinned("failures").drop_columns(["reason"]), mode="overwrite").version
        pins = tables.to_json(versions)
        store.table("boundaries").update(where="boundary_id = 5", values={"schema_version": 0, "versions": pins})
    return folder


def test_an_older_schema_is_migrated_as_a_boundary(old_bank, monkeypatch):
    monkeypatch.setitem(migrations.MIGRATIONS, 0, older)
    with Bank.open(old_bank, embedder(), write=False) as reader:
        assert {c.card_id: c.retrieved_count for c in reader.cards()}[secret_id(reader)] == 1, "a reader sees it through the migration"
        assert len(reader.boundaries()) == 6
    with Bank.open(old_bank, embedder(), by="ada") as bank:
        cards, content = bank.cards(), [bank.store.pinned(n) for n in ("cards", "tombstones", "failures")]
        bank.suspend(["seed-anthem"])
        row = bank.boundaries()[6]
        assert (row.kind, row.schema_version, row.report["details"]) == ("migrate", SCHEMA_VERSION, {"from": 0, "to": SCHEMA_VERSION})
        assert bank.boundaries()[7].kind == "person"
        assert bank.cards(6) == cards == bank.cards(5)
        assert all(bank.store.pinned(n, 6).equals(c) for n, c in zip(("cards", "tombstones", "failures"), content, strict=True))
        assert [e["kind"] for e in bank.store.read_events() if e["boundary_id"] == 6] == ["migrated"]
        assert "reason" in bank.store.table("failures").schema.names
        bank.restore_to(5)
        assert bank.card("seed-anthem").state == "active"


def test_a_schema_that_cannot_be_migrated_or_is_newer_is_refused(old_bank):
    with pytest.raises(BankIncompatible, match="has schema 0, and this SESA .* cannot migrate schema 0"):
        BankStore.open(old_bank, embedder=embedder())
    boundaries = lancedb.connect(str(old_bank)).open_table("boundaries")
    boundaries.update(where="boundary_id = 5", values={"schema_version": SCHEMA_VERSION + 1})
    with pytest.raises(BankIncompatible, match=f"has schema {SCHEMA_VERSION + 1}, this SESA knows {SCHEMA_VERSION}"):
        BankStore.open(old_bank, embedder=embedder(), write=False)


def test_a_migration_that_forgets_a_column_is_stopped(old_bank, monkeypatch):
    monkeypatch.setitem(migrations.MIGRATIONS, 0, lambda name, rows: rows)
    with Bank.open(old_bank, embedder(), by="ada") as bank:
        with pytest.raises(BankError, match="table cards: the migration from schema 0 left retrieved_count empty"):
            bank.suspend(["seed-anthem"])
        assert len(bank.boundaries()) == 6


# -- damage


def files_of(bank: Bank, table: str, part: str) -> list[Path]:
    return sorted((Path(bank.store.uri) / f"{table}.lance" / part).glob("*"))


@pytest.mark.parametrize("table", ["cards", "events", "tombstones", "failures"])
def test_a_truncated_table_is_named_and_changes_nothing(bank, table):
    boundaries = len(bank.boundaries())
    for file in files_of(bank, table, "data"):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(BankError, match=f"table {table} of r.b-00005 cannot be read"):
        bank.store.content_hash()
    with pytest.raises(BankError, match=f"table {table}"):
        bank.compact()
    assert len(bank.boundaries()) == boundaries


def test_a_table_without_its_versions_is_named(bank):
    for file in files_of(bank, "cards", "_versions"):
        file.unlink()
    with pytest.raises(BankError, match="table cards"):
        bank.cards()


def test_a_bank_made_before_there_were_tags_can_be_read_and_gets_them(template, tmp_path):
    shutil.copytree(template, tmp_path / "b")
    shutil.rmtree(tmp_path / "b" / "tags.lance")
    with Bank.open(tmp_path / "b", embedder(), write=False) as reader:
        assert reader.tags() == [] and len(reader.cards(1)) == 3
    with Bank.open(tmp_path / "b", embedder()) as bank:
        assert bank.tag("now") == 5 and isinstance(bank.store.table("tags").to_arrow(), pa.Table)
