"""`sesa judge` as a person reads it: whether a judge answers, what waits for it and why, what it said, what it has cost."""

import json
from dataclasses import asdict, replace

import pytest
from typer.testing import CliRunner

from flows.cli import app
from sesa_core.bank.boundary import commit_segment, initialise
from sesa_core.bank.store import BankStore
from sesa_core.config.models import QueueSettings
from sesa_core.errors import ConfigError, JudgeUnavailable, UserError
from sesa_core.judge.base import ReplyState, Usage
from sesa_core.judge.server import running_server
from tests.bank_support import MODEL, PROMPT, card, draft, embedder, failure, reply, segment_commit


def told(*arguments) -> list[dict] | dict:
    done = CliRunner().invoke(app, ["judge", *map(str, arguments), "--json"])
    assert done.exception is None, done.output
    return json.loads(done.stdout)


@pytest.fixture
def bank(tmp_path):
    """Three failures: one distilled, one that waits after a cut reply, one given up after two calls without a reply."""
    folder, cut = tmp_path / "bank", reply("waits", None, ReplyState.TRUNCATED, "cut after 9 tokens")
    with BankStore.open(folder, embedder=embedder(), run="r") as store:
        initialise(store, [card("anthem")], checkpoints={}, config_hash="c")
        good = reply("done", draft("climate"))
        for each in (good, cut):
            store.store_distillation(each)
        for reason in ("no reply within 60 s", "connection refused"):
            store.store_failed_call("given-up", PROMPT, MODEL, reason)
        failures = [failure("done", "climate", step=1), failure("waits", "currency", step=2), failure("given-up", "religion", step=3)]
        attempts = {"waits": 1, "given-up": 2}
        commit = segment_commit(1, failures=failures, replies=[good], queue=QueueSettings(max_attempts=2), failed_attempts=attempts)
        commit_segment(store, commit)
    return folder


def test_what_waits_and_what_was_given_up_is_listed_with_the_reason(bank):
    (waits,) = told("pending", "--bank", bank)
    assert (waits["failure"], waits["calls_without_a_card"], waits["last_trouble"]) == ("waits", 1, "truncated: cut after 9 tokens")
    (dead,) = told("dead", "--bank", bank)
    assert (dead["failure"], dead["step"], dead["calls_without_a_card"]) == ("given-up", 3, 2)
    assert dead["last_trouble"] == "unavailable: connection refused"


def test_what_the_judge_used_is_summed_by_what_came_of_it(bank):
    rows = told("cost", "--bank", bank)
    assert [(r["reply"], r["calls"]) for r in rows] == [("ok", 1), ("truncated", 1), ("unavailable", 2)]
    used: Usage = reply("done", draft("climate")).usage
    assert (rows[0]["prompt_tokens"], rows[0]["completion_tokens"]) == (used.prompt_tokens, used.completion_tokens)
    assert rows[2]["prompt_tokens"] == 0, "no reply, no usage"


@pytest.fixture
def replied(tmp_path):
    """Two failures: a card that is still read as it was, and after a reply that was cut, one that once was taken for no card."""
    folder, text = tmp_path / "bank", json.dumps(asdict(draft("anthem")) | {"no_lesson": ""})
    good = replace(reply("a", draft("anthem")), reply=text)
    cut = replace(reply("b", None, ReplyState.TRUNCATED, "the reply was cut after 9 tokens"), reply=text[:20])
    missed = replace(reply("b", None, ReplyState.UNPARSABLE, "no card"), reply=f"My card:\x1b[2J\n{text}" + " " * 400)
    with BankStore.open(folder, embedder=embedder(), run="r") as store:
        initialise(store, [card("anthem")], checkpoints={}, config_hash="c")
        for each in (good, cut, missed):
            store.store_distillation(each)
        store.store_failed_call("c", PROMPT, MODEL, "no reply within 60 s")
    return folder


def test_stored_replies_are_read_again_and_what_differs_is_marked(replied):
    before = {p: p.stat().st_mtime_ns for p in replied.rglob("*")}
    good, cut, missed = told("replay", "--bank", replied)
    assert {p: p.stat().st_mtime_ns for p in replied.rglob("*")} == before, "nothing is written"
    found = {"state": "ok", "reason": "", "draft": json.loads(json.dumps(asdict(draft("anthem"))))}
    assert (good["failure"], good["boundary"], good["model"], good["prompt_hash"]) == ("a", 1, MODEL, PROMPT)
    assert (good["recorded"], good["today"], good["differs"]) == (found, found, False)
    assert (cut["recorded"]["state"], cut["today"]["state"], cut["differs"]) == ("truncated", "truncated", False)
    assert missed["recorded"] == {"state": "unparsable", "reason": "no card", "draft": None}
    assert (missed["today"], missed["differs"]) == (found, True)
    assert len(missed["reply"]) > 700, "whole"
    assert [row["failure"] for row in told("replay", "b", "--bank", replied)] == ["b", "b"]


def test_on_a_terminal_a_reply_is_cut_and_harmless(replied):
    lines = CliRunner().invoke(app, ["judge", "replay", "b", "--bank", str(replied)]).stdout.splitlines()
    assert lines[0] == "failure b" and lines[-1] == "2 stored, 1 read differently today"
    assert r"    | My card:\x1b[2J" in lines, "what a terminal would obey is spelled out"
    assert lines[-4].startswith('    | {"category"') and lines[-4].endswith(" characters more")
    assert lines[-3:-1] == [
        "    recorded  unparsable: no card",
        "    today     ok: attribute_lookup, The question asks for the anthem of a country.   <- differs",
    ]


def test_a_failure_without_a_stored_reply_is_named(replied):
    done = CliRunner().invoke(app, ["judge", "replay", "a", "c", "--bank", str(replied)])
    assert isinstance(done.exception, UserError) and "no reply about c is stored" in str(done.exception)


def test_a_judge_that_answers_says_what_it_supports():
    with running_server() as address:
        status = told("check", "--set", f"judge.base_url={address}")
    assert (status["address"], status["model"], status["model_listed"], status["structured_output"]) == (
        address,
        "sesa-analyst",
        True,
        True,
    )


@pytest.mark.parametrize(
    ("setting", "error", "says"),
    [
        ("judge.base_url=http://127.0.0.1:1/v1", JudgeUnavailable, "judge at http://127.0.0.1:1/v1"),
        ("judge.model=gpt-9", ConfigError, "judge.model"),
    ],
)
def test_a_judge_that_does_not_answer_is_named(setting, error, says):
    done = CliRunner().invoke(app, ["judge", "check", "--set", setting])
    assert type(done.exception) is error and says in str(done.exception)


def test_a_wrong_plan_of_faults_is_refused_before_anything_listens():
    done = CliRunner().invoke(app, ["judge", "serve", "--port", "0", "--faults", "ok*3,tags,nothing"])
    assert isinstance(done.exception, ConfigError) and "'nothing' is not allowed" in str(done.exception)
