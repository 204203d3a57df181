"""One judge call as a Prefect task: retried when the judge is down, cached when it succeeded.

Invariant: a reply is in the bank before its task ends, so whatever Prefect forgets, no call is paid for twice. A reply that
holds no card fails its task: it shows in the UI, it is not cached, and its failure stays pending.
"""

from typing import Any

from prefect import task
from prefect.cache_policies import CacheKeyFnPolicy
from prefect.client.schemas.objects import TaskRun
from prefect.context import TaskRunContext
from prefect.states import State, aget_state_exception
from prefect.tasks import Task

from tasks.judge_batch import JudgeBatch, batch_of
from tasks.keys import cache_key


def _call_key(context: TaskRunContext, parameters: dict[str, Any]) -> str:
    return cache_key("judge", batch_of(parameters["run_dir"]).run, *(parameters[n] for n in ("failure_id", "prompt_hash", "model")))


@task(
    task_run_name="judge {failure_id}",
    persist_result=True,
    cache_policy=CacheKeyFnPolicy(cache_key_fn=_call_key),
    retry_jitter_factor=0.5,
    tags=["judge"],
)
async def judge_failure(run_dir: str, failure_id: str, prompt_hash: str, model: str) -> dict[str, Any]:
    """Ask the judge about one failure. Returns what the judge table shows of it.

    Raises JudgeUnavailable, JudgeRejected, or JudgeReplyUnusable for a reply that cannot be used.
    """
    reply = await batch_of(run_dir).ask_for_use(failure_id)
    return {
        "status": "ok" if reply.draft else f"no lesson: {reply.reason}",
        "tokens": reply.usage.prompt_tokens + reply.usage.completion_tokens,
    }


def with_patience(batch: JudgeBatch) -> Task:
    """The task with the settings' retries, each delay twice the one before, for calls that the batch finds worth repeating."""
    settings = batch.settings
    delays = [settings.retry_delay_s * 2**i for i in range(settings.retries)]

    async def worth_repeating(task: Task, run: TaskRun, state: State) -> bool:
        return batch.worth_repeating(await aget_state_exception(state))

    return judge_failure.with_options(retries=settings.retries, retry_delay_seconds=delays or 0, retry_condition_fn=worth_repeating)
