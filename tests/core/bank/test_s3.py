"""A bank in an object store: a real S3 API (moto) on loopback. There is no file lock there: the key of `boundaries` fences."""

import logging
import uuid

import boto3
import pytest

from sesa_core.bank.bank import Bank
from sesa_core.bank.boundary import commit_plan, commit_segment, initialise, recover
from sesa_core.bank.edition import Person, plan_edition
from sesa_core.bank.operations import suspend
from sesa_core.bank.store import BankStore
from sesa_core.cards.schema import CardState
from sesa_core.errors import BankError, BoundaryConflict, MissingRun
from tests.bank_support import MODEL, PROMPT, card, draft, embedder, failure, reply, segment_commit

BUCKET, KEY, REGION = "lessons", "not-a-secret", "us-east-1"


@pytest.fixture(scope="module")
def server():
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    started = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    address = f"http://{host}:{port}"
    client = boto3.client("s3", endpoint_url=address, region_name=REGION, aws_access_key_id=KEY, aws_secret_access_key=KEY)
    client.create_bucket(Bucket=BUCKET)
    client.close()
    yield address
    started.stop()


@pytest.fixture
def options(server):
    return {
        "aws_endpoint": server,
        "allow_http": "true",
        "aws_access_key_id": KEY,
        "aws_secret_access_key": KEY,
        "aws_region": REGION,
    }


@pytest.fixture
def uri():
    return f"s3://{BUCKET}/{uuid.uuid4().hex}/bank"


def opened(uri: str, options: dict[str, str], **more) -> BankStore:
    return BankStore.open(uri, embedder=embedder(), storage_options=options, **more)


def test_a_bank_lives_in_an_object_store_as_it_does_in_a_folder(uri, options, tmp_path):
    with Bank.open(uri, embedder(), by="ada", run="far", storage_options=options) as bank:
        assert not bank.store.fenced_by_lock
        initialise(bank.store, [card("anthem"), card("climate")], checkpoints={}, config_hash="c")
        commit_segment(bank.store, segment_commit(1, failures=[failure("f", "currency")], replies=[reply("f", draft("currency"))]))
        bank.store.store_distillation(reply("g", draft("religion")))
        bank.evict(["card-climate"])
        bank.tag("start", 0)
        bank.restore_to("start")
        assert bank.compact(keep=1).released == (1, 2, 3)
        bank.export(tmp_path / "far.jsonl")
    with Bank.open(uri, embedder(), write=False, storage_options=options) as bank:
        assert [c.card_id for c in bank.cards()] == ["card-anthem", "card-climate"] == [c.card_id for c in bank.cards("start")]
        assert [b.kind for b in bank.boundaries()] == ["start", "segment", "person", "restore", "compact"]
        assert len(bank.store.stored_distillations(["g"], PROMPT, MODEL)) == 1
    with Bank.open(tmp_path / "near", embedder()) as near:
        assert near.take_in(tmp_path / "far.jsonl").added == ("card-anthem", "card-climate")


def test_the_usual_environment_gives_endpoint_and_keys(uri, server, options, monkeypatch):
    with opened(uri, options, run="r") as store:
        initialise(store, [card("anthem")], checkpoints={}, config_hash="c")
    names = {
        "AWS_ENDPOINT_URL": server,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": KEY,
        "AWS_REGION": REGION,
    }
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    with BankStore.open(uri, embedder=embedder(), write=False) as store:
        assert len(store.read_cards()) == 1 and store.run == "r"


def test_a_second_writer_is_refused_and_what_it_wrote_is_taken_back(uri, options):
    with opened(uri, options, run="r", owner="first") as first, opened(uri, options, owner="second") as second:
        initialise(first, [card("anthem"), card("climate")], checkpoints={}, config_hash="c")
        plans = []
        for store in (first, second):
            recover(store)
            edition = suspend(store.read_state(), ["card-anthem" if store is first else "card-climate"], Person(store.owner))
            plans.append(plan_edition(store.read_state(), edition, max_cards=800, dimension=256))
        commit_plan(first, plans[0])
        with pytest.raises(BoundaryConflict, match="another writer is changing table cards; nothing was committed, try again"):
            commit_plan(second, plans[1])
        assert second.last_boundary().owner == "first"
        assert recover(second) == ["cards"]
        assert {c.card_id: c.state for c in second.read_cards()} == {
            "card-anthem": CardState.SUSPENDED,
            "card-climate": CardState.ACTIVE,
        }
        state = second.read_state()
        again = plan_edition(state, suspend(state, ["card-climate"], Person("second")), max_cards=800, dimension=256)
        assert commit_plan(second, again).boundary_id == 2, "tried again, it is the next boundary"


def test_a_writer_that_wakes_up_late_commits_nothing(uri, options):
    """The first writer stops between its data and its row; meanwhile the second recovers and commits that boundary."""
    with opened(uri, options, run="r", owner="slow") as slow, opened(uri, options, owner="quick") as quick:
        initialise(slow, [card("anthem"), card("climate")], checkpoints={}, config_hash="c")

        def overtaken(name: str) -> None:
            if name == "tag:failures":
                bank = Bank(quick, by="quick")
                assert bank.suspend(["card-climate"]).boundary_id == 1

        recover(slow)
        state = slow.read_state()
        plan = plan_edition(state, suspend(state, ["card-anthem"], Person("slow")), max_cards=800, dimension=256)
        with pytest.raises(BoundaryConflict, match="boundary 1 was committed by another writer"):
            commit_plan(slow, plan, after_write=overtaken)
        assert [(b.boundary_id, b.owner) for b in slow.boundaries()] == [(0, "slow"), (1, "quick")]
        assert {c.card_id: str(c.state) for c in slow.read_cards()} == {"card-anthem": "active", "card-climate": "suspended"}


def test_an_object_store_without_a_bank_is_said_to_have_none(uri, options):
    with pytest.raises(MissingRun, match="is not complete"):
        opened(uri, options, write=False)


def test_an_object_store_that_does_not_answer_is_named(options):
    nowhere = options | {"aws_endpoint": "http://127.0.0.1:9", "client_max_retries": "0", "client_retry_timeout": "1"}
    with pytest.raises(BankError, match="cannot be reached"):
        opened(f"s3://{BUCKET}/x", nowhere, write=False)
