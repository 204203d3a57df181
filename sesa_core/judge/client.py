"""The judge behind any OpenAI-compatible endpoint.

Owns the calls, their deadline and what is learned of the server (`Dialect`). Invariant: an exception of the openai library
never leaves this module, and no key is in any message or repr. A client lives for one call, because calls come from
whatever event loop a task runs in and an open connection belongs to its loop.

Retries are not made here: whoever schedules the calls (Prefect) owns them. The only second request inside one call is made
when the server refuses a parameter (structured output, `max_tokens`, `temperature`) and is asked again without it.
"""

import asyncio
import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import openai

from sesa_core.config.models import JudgeSettings
from sesa_core.errors import JudgeRateLimited, JudgeRejected, JudgeUnavailable, ServiceError
from sesa_core.judge import compose, replies
from sesa_core.judge.base import Distillation, EvidenceAnswer, JudgeStatus, ReplyState, Usage, Verdict
from sesa_core.types import Failure, Passage

CONNECT_SECONDS = 10.0  # also on a machine that is busy training
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_WORTH_ANOTHER_TRY = {408, 409, 425}


@dataclass(frozen=True)
class Dialect:
    """Which optional parts of the API this server takes."""

    structured: bool = True
    token_limit: str = "max_tokens"
    temperature: bool = True

    def without_what(self, complaint: str) -> "Dialect | None":
        """The dialect to try after a 400 or 422 with this text; None when nothing is left to leave out."""
        if self.token_limit == "max_tokens" and "max_completion_tokens" in complaint:
            return replace(self, token_limit="max_completion_tokens")
        if self.temperature and "temperature" in complaint:
            return replace(self, temperature=False)
        return replace(self, structured=False) if self.structured else None


class OpenAIJudge:
    """Implements `judge.base.Judge`. `base_url` ends in `/v1` as OpenAI's does; `api_key` may be None on loopback."""

    def __init__(self, settings: JudgeSettings, base_url: str, api_key: str | None) -> None:
        self.model = settings.model
        self.prompt_hash = compose.prompt_hash("distil")
        self.dialect = Dialect()
        self._settings, self._base_url, self._api_key = settings, base_url, api_key

    def __repr__(self) -> str:
        return f"OpenAIJudge(model={self.model!r}, at={self.address!r})"

    @property
    def address(self) -> str:
        """Host and path of the endpoint, without whatever credentials the URL holds."""
        parts = urlsplit(self._base_url)
        return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"

    async def distill(self, failure: Failure, max_tokens: int | None = None) -> Distillation:
        """One paid call about one failure. Raises `JudgeUnavailable`, `JudgeRateLimited` or `JudgeRejected`."""
        envelope, usage = await self._complete("distil", compose.distil_material(failure), compose.CARD_SCHEMA, max_tokens)
        state, draft, reason = replies.read(envelope, replies.parse_card)
        return Distillation(failure.failure_id, self.prompt_hash, self.model, state, draft, envelope.text, usage, reason)

    async def verdict(self, question: str, reference_answers: Sequence[str], answer: str) -> Verdict:
        """Whether `answer` is equivalent to a reference. Raises as `distill` does."""
        material = compose.verdict_material(question, reference_answers, answer)
        envelope, usage = await self._complete("verdict", material, compose.VERDICT_SCHEMA)
        state, score, reason = replies.read(envelope, replies.parse_verdict)
        return Verdict(compose.prompt_hash("verdict"), self.model, state, score, envelope.text, usage, reason)

    async def answer(self, question: str, passages: Sequence[Passage]) -> EvidenceAnswer:
        """What the passages alone answer. Raises as `distill` does."""
        envelope, usage = await self._complete("answer", compose.answer_material(question, passages), compose.ANSWER_SCHEMA)
        state, given, reason = replies.read(envelope, replies.parse_answer)
        if envelope.state is ReplyState.REFUSED:  # the model would not reply, which says nothing about the passages
            state = ReplyState.FILTERED
        return EvidenceAnswer(compose.prompt_hash("answer"), self.model, state, given, envelope.text, usage, reason)

    async def ping(self) -> JudgeStatus:
        """One small round trip: does the server answer, list the model, keep to a schema? Raises as `distill` does."""
        listed = await self._list_models()
        envelope, usage = await self._complete("ping", {}, compose.PING_SCHEMA)
        if envelope.state is not None and envelope.state is not ReplyState.TRUNCATED:
            raise JudgeUnavailable(f"judge at {self.address}: {envelope.reason}")
        try:
            kept_schema = isinstance(json.loads(envelope.text), dict)
        except (ValueError, RecursionError):
            kept_schema = False
        structured = self.dialect.structured and kept_schema
        return JudgeStatus(self.model, None if listed is None else self.model in listed, structured, usage.seconds)

    async def _complete(
        self, prompt: str, material: Mapping[str, object], schema: dict, max_tokens: int | None = None
    ) -> tuple[replies.Envelope, Usage]:
        started = time.monotonic()
        messages, dialect = compose.messages(prompt, material), self.dialect
        while True:
            try:
                body = await self._post(messages, schema, prompt, dialect, max_tokens or self._settings.max_tokens)
                break
            except _ParameterRefused as refused:
                poorer = dialect.without_what(refused.complaint)
                if poorer is None:
                    raise JudgeRejected(refused.complaint) from None
                dialect = poorer
        self.dialect = dialect  # only what has worked: a request that is wrong in another way teaches nothing
        envelope = replies.open_envelope(body)
        cost = self._settings.price_prompt * envelope.prompt_tokens + self._settings.price_completion * envelope.completion_tokens
        return envelope, Usage(envelope.prompt_tokens, envelope.completion_tokens, cost / 1e6, time.monotonic() - started)

    async def _post(self, messages: list[dict], schema: dict, name: str, dialect: Dialect, max_tokens: int) -> Mapping:
        options: dict[str, object] = {dialect.token_limit: max_tokens}
        if dialect.temperature:
            options["temperature"] = self._settings.temperature
        if dialect.structured:
            options["response_format"] = {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}
        try:
            async with asyncio.timeout(self._settings.timeout_s), self._open() as client:
                raw = await client.chat.completions.with_raw_response.create(model=self.model, messages=messages, **options)
                return _json_object(raw.http_response.content)
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            raise _ParameterRefused(self._public(error)) from None
        except (openai.OpenAIError, TimeoutError, _NotJson) as error:
            # `from None`: the library's exception carries the request, and with it the key, into tracebacks.
            raise self._translated(error) from None

    async def _list_models(self) -> set[str] | None:
        """The ids that the server lists, None if it lists none (not every server does)."""
        try:
            async with asyncio.timeout(self._settings.timeout_s), self._open() as client:
                raw = await client.models.with_raw_response.list()
                rows = _json_object(raw.http_response.content).get("data")
        except (openai.NotFoundError, _NotJson):
            return None
        except (openai.OpenAIError, TimeoutError) as error:
            raise self._translated(error) from None
        return {str(r.get("id")) for r in rows if isinstance(r, dict)} if isinstance(rows, list) and rows else None

    def _open(self) -> openai.AsyncOpenAI:
        seconds = self._settings.timeout_s
        target = urlsplit(self._base_url)
        # A proxy that the environment names must not see, or swallow, what is meant for this machine. And reading the
        # certificate store takes 50 ms, which plain HTTP can do without.
        transport = openai.DefaultAsyncHttpxClient(trust_env=target.hostname not in _LOOPBACK, verify=target.scheme != "http")
        return openai.AsyncOpenAI(
            base_url=self._base_url,
            api_key=self._api_key or "none",
            timeout=openai.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds)),
            max_retries=0,
            http_client=transport,
        )

    def _public(self, error: Exception) -> str:
        """What an error says, on one line, without the key."""
        text = str(error)
        if self._api_key:
            text = text.replace(self._api_key, "***")
        text = re.sub(r"\bsk-[\w*-]{4,}", "***", text)
        return f"judge at {self.address}: {' '.join(text.split())[:300]}"

    def _translated(self, error: Exception) -> ServiceError:
        """The one place where a failure of the endpoint becomes an error of SESA."""
        if isinstance(error, TimeoutError | openai.APITimeoutError):
            return JudgeUnavailable(f"judge at {self.address}: no reply within {self._settings.timeout_s:g} s")
        if isinstance(error, openai.RateLimitError):
            return JudgeRateLimited(self._public(error), retry_after(error.response.headers, time.time()))
        if isinstance(error, openai.APIStatusError) and error.status_code < 500 and error.status_code not in _WORTH_ANOTHER_TRY:
            return JudgeRejected(self._public(error))
        return JudgeUnavailable(self._public(error))


class _ParameterRefused(Exception):
    """HTTP 400 or 422: perhaps only one optional parameter is not known here."""

    def __init__(self, complaint: str) -> None:
        super().__init__(complaint)
        self.complaint = complaint


class _NotJson(Exception):
    """Status 200, but no JSON object: a proxy's page, or a body that was cut."""


def _json_object(content: bytes) -> dict:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):  # ValueError: no JSON, no UTF-8, or an integer of too many digits
        raise _NotJson(f"the reply is not JSON: {content[:80].decode(errors='replace')!r}") from None
    if not isinstance(value, dict):
        raise _NotJson(f"the reply is a JSON {type(value).__name__}, not an object")
    return value


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait according to `retry-after-ms` or `retry-after` (seconds or an HTTP date), None if neither can be read."""
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = (headers.get(name) or "").strip()
        if re.fullmatch(r"\d+(\.\d+)?", value):
            return float(value) / unit
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after") or "").timestamp() - now)
    except ValueError:
        return None
