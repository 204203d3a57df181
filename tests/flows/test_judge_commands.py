"""`sesa judge` as a person reads it: whether a judge answers, what waits for it and why, what it has cost."""

import json

import pytest
from typer.testing import CliRunner

from flows.cli import app
from sesa_core.bank.boundary import commit_segment, initialise
from sesa_core.bank.store import BankStore
from sesa_core.config.models import QueueSettings
from sesa_core.errors import ConfigError, JudgeUnavailable
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
    assert dead["last_trouble"] in ("unavailable: no reply within 60 s", "unavailable: connection refused")


def test_what_the_judge_used_is_summed_by_what_came_of_it(bank):
    rows = told("cost", "--bank", bank)
    assert [(r["reply"], r["calls"]) for r in rows] == [("ok", 1), ("truncated", 1), ("unavailable", 2)]
    used: Usage = reply("done", draft("climate")).usage
    assert (rows[0]["prompt_tokens"], rows[0]["completion_tokens"]) == (used.prompt_tokens, used.completion_tokens)
    assert rows[2]["prompt_tokens"] == 0, "no reply, no usage"


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
