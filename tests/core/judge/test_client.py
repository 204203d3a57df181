"""The client over HTTP: against the built-in judge, and against servers that fail as real ones do."""

import asyncio
import json
import logging
import socket

import pytest
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from sesa_core.errors import ConfigError, JudgeRateLimited, JudgeRejected, JudgeUnavailable
from sesa_core.judge import compose
from sesa_core.judge.base import ReplyState
from sesa_core.judge.client import retry_after
from sesa_core.judge.server import running_server, serve
from tests.judge_support import CARD, completion, judge_at, serving, wrong_section

SECRET = "very-secret-0123456789"


class Scripted:
    """A judge server that gives `replies` in turn (the last one for ever) and keeps the requests it got."""

    def __init__(self, *replies: object) -> None:
        self.replies, self.requests, self.app = list(replies), [], FastAPI()
        self.app.post("/v1/chat/completions", response_model=None)(self.reply)

    async def reply(self, request: Request) -> Response:
        self.requests.append(await request.json() | {"authorization": request.headers["authorization"]})
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return reply if isinstance(reply, Response) else JSONResponse(reply)


def distill_at(server: Scripted, **settings):
    with serving(server.app) as url:
        return asyncio.run(judge_at(url, SECRET, **settings).distill(wrong_section()))


def refusal_of(parameter: str) -> JSONResponse:
    return JSONResponse({"error": {"message": f"{parameter} is not supported with this model", "type": "invalid_request_error"}}, 400)


@pytest.fixture(scope="module")
def builtin():
    with running_server() as url:
        yield url


def test_the_built_in_judge_writes_a_card(builtin):
    judge = judge_at(builtin)
    reply = asyncio.run(judge.distill(wrong_section()))
    assert (reply.state, reply.failure_id, reply.model) == (ReplyState.OK, "f-1", "sesa-analyst")
    assert (reply.draft.trigger_keywords[0], reply.draft.queries) == ("anthem", ("{country} culture",))
    assert reply.prompt_hash == judge.prompt_hash == compose.prompt_hash("distil")
    assert reply.usage.prompt_tokens > 300
    assert reply.usage.completion_tokens > 30
    assert reply.usage.seconds > 0


def test_ping_says_what_the_server_can_do(builtin):
    status = asyncio.run(judge_at(builtin).ping())
    assert (status.model, status.model_listed, status.structured_output) == ("sesa-analyst", True, True)


@pytest.mark.parametrize("said", ["Ready!", "9" * 5_000, "[" * 5_000])
def test_ping_on_a_plain_server(said):
    server = Scripted(refusal_of("response_format"), completion(said))
    with serving(server.app) as url:
        status = asyncio.run(judge_at(url).ping())
    assert (status.model_listed, status.structured_output) == (None, False)


def test_the_built_in_judge_knows_its_own_model_only(builtin):
    with pytest.raises(JudgeRejected, match="gpt-9"):
        asyncio.run(judge_at(builtin, model="gpt-9").distill(wrong_section()))


def test_verdicts_of_the_built_in_judge(builtin):
    judge = judge_at(builtin)

    async def scores(*answers):
        verdicts = [await judge.verdict("Which river?", ["Río Negro"], a) for a in answers]
        return [v.score for v in verdicts]

    assert asyncio.run(scores("rio negro", "the Río Negro in Brazil", "Amazon", "Rio Negro or Amazon", "")) == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_calls_from_several_event_loops_share_one_judge(builtin):
    judge = judge_at(builtin)
    first, second = (asyncio.run(judge.distill(wrong_section(i))) for i in ("a", "b"))
    assert (first.draft, second.failure_id) == (second.draft, "b")


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(CARD),
        f"Sure!\n```json\n{json.dumps(CARD)}\n```",
        "CATEGORY: attribute_lookup\nPATTERN: The question asks for the anthem of a country.\n"
        "COMMON_CONFUSION: It is looked for under economy.\n"
        "KEY_DISTINCTION: It stands under culture.\nTRIGGER_KEYWORDS: anthem\nQUERIES: {country} culture",
    ],
)
def test_structured_plain_and_line_replies_give_the_same_card(text):
    reply = distill_at(Scripted(completion(text)))
    assert reply.state is ReplyState.OK
    assert (reply.draft.pattern, reply.draft.queries) == (CARD["pattern"], ("{country} culture",))
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (11, 7)


def test_a_server_without_json_schema_is_asked_again_without_and_remembered():
    server = Scripted(refusal_of("response_format"), completion(json.dumps(CARD)))
    with serving(server.app) as url:
        judge = judge_at(url)
        assert asyncio.run(judge.distill(wrong_section())).state is ReplyState.OK
        assert asyncio.run(judge.distill(wrong_section())).state is ReplyState.OK
    assert ["response_format" in r for r in server.requests] == [True, False, False]


def test_newer_parameter_names_are_learned():
    server = Scripted(refusal_of("max_tokens: use max_completion_tokens; it"), refusal_of("temperature"), completion(json.dumps(CARD)))
    reply = distill_at(server, max_tokens=900)
    assert reply.state is ReplyState.OK
    last = server.requests[-1]
    assert (last["max_completion_tokens"], "max_tokens" in last, "temperature" in last, "response_format" in last) == (
        900,
        False,
        False,
        True,
    )


def test_a_request_that_stays_wrong_is_rejected():
    too_long = JSONResponse({"error": {"message": "the prompt is too long"}}, 400)
    server = Scripted(too_long, too_long, completion(json.dumps(CARD)))
    with serving(server.app) as url:
        judge = judge_at(url)
        with pytest.raises(JudgeRejected, match="the prompt is too long"):
            asyncio.run(judge.distill(wrong_section()))
        assert len(server.requests) == 2
        assert asyncio.run(judge.distill(wrong_section("shorter"))).state is ReplyState.OK
    assert "response_format" in server.requests[-1]


@pytest.mark.parametrize(
    ("body", "state"),
    [
        (completion(json.dumps(CARD), finish="length"), ReplyState.TRUNCATED),
        (completion(json.dumps(CARD)[:-40]), ReplyState.UNPARSABLE),
        (completion(None, refusal="I cannot judge this."), ReplyState.REFUSED),
        (completion("", finish="content_filter"), ReplyState.FILTERED),
        (completion(""), ReplyState.EMPTY),
        (completion("x") | {"choices": []}, ReplyState.EMPTY),
        (completion(json.dumps(CARD | {"category": "ninth"})), ReplyState.UNPARSABLE),
    ],
)
def test_a_reply_that_is_no_card_keeps_its_state_text_and_cost(body, state):
    reply = distill_at(Scripted(body))
    assert (reply.state, reply.draft) == (state, None)
    assert reply.reason
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (11, 7)


def test_rate_limits_carry_their_wait():
    limited = JSONResponse({"error": {"message": "slow down"}}, 429, headers={"retry-after": "17"})
    with pytest.raises(JudgeRateLimited, match="slow down") as caught:
        distill_at(Scripted(limited))
    assert caught.value.retry_after == 17.0
    with pytest.raises(JudgeRateLimited) as caught:
        distill_at(Scripted(JSONResponse({}, 429)))
    assert caught.value.retry_after is None


def test_retry_after_in_all_its_forms():
    assert retry_after({"retry-after-ms": "1500", "retry-after": "9"}, 0.0) == 1.5
    assert retry_after({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 40.0) == 60.0
    assert retry_after({"retry-after": "Thu, 01 Jan 1970 00:01:40 GMT"}, 400.0) == 0.0
    assert retry_after({"retry-after": "soon"}, 0.0) is None
    assert retry_after({}, 0.0) is None


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (JSONResponse({"error": "boom"}, 500), JudgeUnavailable),
        (JSONResponse({"error": "busy"}, 503), JudgeUnavailable),
        (Response("<html>Bad gateway</html>", media_type="text/html"), JudgeUnavailable),
        (Response("[1]", media_type="application/json"), JudgeUnavailable),
        (Response(b'{"choices": [\xff', media_type="application/json"), JudgeUnavailable),
        (Response(f'{{"created": {"9" * 5_000}}}', media_type="application/json"), JudgeUnavailable),
        (Response("<html>", 302, headers={"location": "http://127.0.0.1:1/"}), JudgeUnavailable),
        (JSONResponse({"error": "no such key"}, 401), JudgeRejected),
        (JSONResponse({"error": "forbidden"}, 403), JudgeRejected),
        (JSONResponse({"error": "no such model"}, 404), JudgeRejected),
    ],
)
def test_failures_of_the_server_are_told_apart_and_never_retried_here(reply, error):
    server = Scripted(reply)
    with pytest.raises(error) as caught:
        distill_at(server)
    assert type(caught.value) is error
    assert len(server.requests) == 1


def test_a_refused_connection_is_unavailable():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(JudgeUnavailable, match=f"127.0.0.1:{port}"):
        asyncio.run(judge_at(f"http://127.0.0.1:{port}/v1").distill(wrong_section()))


def test_a_server_that_hangs_is_given_up_after_the_deadline():
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(JudgeUnavailable, match="no reply within 0.3 s"):
        asyncio.run(judge_at(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", timeout_s=0.3).distill(wrong_section()))


def test_the_key_is_sent_and_never_shown(caplog):
    echo = Scripted(JSONResponse({"error": {"message": f"Incorrect API key provided: {SECRET}"}}, 401))
    caplog.set_level(logging.DEBUG)
    with serving(echo.app) as url:
        judge = judge_at(url.replace("http://", "http://user:hidden@"), SECRET)
        with pytest.raises(JudgeRejected) as caught:
            asyncio.run(judge.distill(wrong_section()))
    assert echo.requests[0]["authorization"] in (f"Bearer {SECRET}", "Basic dXNlcjpoaWRkZW4=")
    shown = repr(judge) + str(caught.value) + caplog.text
    assert "Incorrect API key" in str(caught.value)
    assert SECRET not in shown
    assert "hidden" not in repr(judge) + str(caught.value)


def test_proxy_settings_do_not_reach_loopback(builtin, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert asyncio.run(judge_at(builtin).distill(wrong_section())).state is ReplyState.OK


def test_the_built_in_judge_listens_on_loopback_only():
    with pytest.raises(ConfigError, match="loopback only"):
        serve(host="0.0.0.0")


def test_a_taken_port_is_named(builtin):
    port = int(builtin.rsplit(":", 1)[1].split("/")[0])
    with pytest.raises(ConfigError, match=str(port)), running_server(port):
        pass


def test_the_server_is_gone_after_its_block():
    with running_server() as url:
        port = int(url.rsplit(":", 1)[1].split("/")[0])
    with pytest.raises(JudgeUnavailable):
        asyncio.run(judge_at(url).distill(wrong_section()))
    with running_server(port) as again:
        assert again == url
