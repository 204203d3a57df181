"""Failures written by hand, in the texts of the embedded world, and small servers that misbehave as real ones do."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from sesa_core.config.models import JudgeSettings
from sesa_core.judge.client import OpenAIJudge
from sesa_core.judge.faults import App, Message, Reachable, Receive, Send
from sesa_core.types import Failure, Passage, ShownCard

CORDOBA_EUROPE = ("Cordoba", "City in Spain, Europe.")
CORDOBA_AMERICA = ("Cordoba", "City in Argentina, South America.")
SPAIN_TRADE = ("Spain trade", "export partner: France. import partner: Germany. top export: cars.")
SPAIN_ECONOMY = ("Spain economy", "currency: Euro. industry: textiles. main crop: barley.")
SPAIN_CULTURE = ("Spain culture", "symbol: Pillars of Hercules. anthem: Marcha Real. colors: red, yellow.")
FRANCE_CULTURE = ("France culture", "symbol: Gallic rooster. anthem: La Marseillaise. colors: blue, white, red.")
FRANCE_SOCIETY = ("France society", "religion: Roman Catholic. language: French. holiday: Bastille Day.")
GALLIUM_CHEMISTRY = ("Gallium chemistry", "Symbol Ga. Period 4.")
GALLIUM_DISCOVERY = ("Gallium discovery", "Found in France. Year 1875.")
CARD = {
    "category": "attribute_lookup",
    "pattern": "The question asks for the anthem of a country.",
    "common_confusion": "It is looked for under economy.",
    "key_distinction": "It stands under culture.",
    "trigger_keywords": ["anthem"],
    "queries": ["{country} culture"],
    "no_lesson": "",
}  # as a judge writes it
LONG_CHAIN = "What is the anthem of the export partner of the country of the city Cordoba in Europe?"


def passages(rows: list[tuple[str, str]]) -> tuple[Passage, ...]:
    return tuple(Passage(f"{title}/{text}", title, text) for title, text in rows)


def failure(
    question: str,
    reference: str,
    answer: str,
    searches: list[str],
    seen: list[tuple[str, str]],
    source: list[tuple[str, str]],
    cards: tuple[str, ...] = (),
    failure_id: str = "f-1",
) -> Failure:
    return Failure(
        failure_id=failure_id,
        problem_id=f"p-{failure_id}",
        step=3,
        question=question,
        reference_answers=(reference,),
        answer=answer,
        hops=1 + question.count(" of the "),
        queries=tuple(searches),
        evidence=passages(seen),
        problem_evidence=passages(source),
        shown_cards=tuple(ShownCard(f"c-{i}", 0.5, text) for i, text in enumerate(cards)),
    )


def wrong_section(failure_id: str = "f-1") -> Failure:
    """Asked for an anthem, looked under economy."""
    return failure(
        "What is the anthem of the country of the city Cordoba in Europe?",
        "Marcha Real",
        "Euro",
        ["Cordoba Europe", "Spain economy"],
        [CORDOBA_EUROPE, SPAIN_ECONOMY],
        [SPAIN_CULTURE, ("Spain places", "city Cordoba in Europe; port Cadiz.")],
        failure_id=failure_id,
    )


def judge_at(base_url: str, api_key: str | None = None, **settings: object) -> OpenAIJudge:
    return OpenAIJudge(JudgeSettings(**{"timeout_s": 60.0, **settings}), base_url, api_key)


def completion(content: object, finish: str = "stop", refusal: str | None = None) -> dict:
    message = {"role": "assistant", "content": content, "refusal": refusal}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
    }


class Watched:
    """An ASGI app that notes the body of each call that it hands on, whatever `app` does with it."""

    def __init__(self, app: App) -> None:
        self.app, self.bodies = app, list[str]()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if not scope["path"].endswith("/chat/completions"):
            return await self.app(scope, receive, send)
        heard = [await receive()]
        while heard[-1].get("more_body"):
            heard.append(await receive())
        self.bodies.append(b"".join(m.get("body", b"") for m in heard).decode())

        async def again() -> Message:
            return heard.pop(0) if heard else await receive()

        return await self.app(scope, again, send)


@contextlib.contextmanager
def serving(app: FastAPI | App) -> Iterator[str]:
    """Run a test's own app on a free loopback port; yields its base URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, http=Reachable, log_config=None, lifespan="off", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.005)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join()
