"""The judge calls of a segment as a flow: in the run's own process, or as a run of its own deployment, which the UI can retry alone.

Owns when a batch begins and how long a boundary waits for it. Invariants: a batch fails alone, never its segment; a reply is in
the bank before its call ends, so whoever asks again pays for nothing twice. Edge case: a batch of its own that is retried after
the run went on commits its cards as a boundary of their own, or leaves them to the run's next one.
"""

import asyncio
import contextvars
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from sesa_core.config.environment import quiet_libraries

quiet_libraries()  # a worker imports this module first

from pathlib import Path  # noqa: E402
from uuid import UUID  # noqa: E402

import httpx  # noqa: E402
from prefect import flow, get_client, get_run_logger  # noqa: E402
from prefect.client.orchestration import SyncPrefectClient  # noqa: E402
from prefect.deployments import run_deployment  # noqa: E402
from prefect.exceptions import ObjectNotFound  # noqa: E402
from prefect.runtime import deployment  # noqa: E402
from prefect.states import Cancelled, Completed, Failed, Running, State  # noqa: E402

from flows.judgements import batch_in_this_process, commit_late  # noqa: E402
from sesa_core.training.run_folder import RunFolder  # noqa: E402
from sesa_core.types import Failure  # noqa: E402
from tasks.distillation import with_patience  # noqa: E402
from tasks.judge_batch import JudgeBatch, at_work, brought, find_batch  # noqa: E402
from tasks.live_run import LiveRun  # noqa: E402

DEPLOYMENT = "distill_batch/distill_batch"
START_S, LOOK_S = 90.0, 1.0  # how long a worker may take to begin, and how often we look
Finish = Callable[[float], None]  # waits for a batch; after so many seconds it starts no further call


@flow(name="distill_batch", flow_run_name="distil segment {number}")
async def distill_batch(run_dir: str, number: int, failure_ids: list[str]) -> State:
    """One retried, persisted task per failure. Ends Failed, and visible, if any call brought no usable reply."""
    batch = find_batch(run_dir)
    if batch is not None:
        return _ended(len(failure_ids), await _judge(run_dir, batch, failure_ids), "")
    folder = RunFolder(Path(run_dir))
    with batch_in_this_process(folder, number, failure_ids) as batch:
        failed = await _judge(run_dir, batch, failure_ids)
    return _ended(len(failure_ids), failed, "; " + commit_late(folder, batch.judge, failure_ids))


async def _judge(run_dir: str, batch: JudgeBatch, failure_ids: Sequence[str]) -> int:
    """How many calls brought no usable reply."""
    ask = with_patience(batch)
    return batch.note(await brought({f: ask(run_dir, f, batch.judge.prompt_hash, batch.judge.model) for f in failure_ids}))


def _ended(calls: int, failed: int, what_came: str) -> State:
    if failed:
        return Failed(message=f"{failed} of {calls} judge calls brought no usable reply; their failures stay pending{what_came}")
    return Completed(message=f"{calls} judge calls, each with a usable reply{what_came}")


def distilled(run: LiveRun, number: int, judged: Collection[str]) -> list[str]:
    """Judge a trained segment's selection now; ids of its failures. With `distill.overlap` only the last segment does."""
    if run.config.distill.overlap and number < run.config.selfplay.segments:
        return []
    failures = run.select(run.finished(number), judged)
    if failures:
        run.show_stage("distil", number, f"judging {len(failures)} failures")
        _begin(run, number, failures)(run.config.distill.max_wait_s)
    return [f.failure_id for f in failures]


@contextmanager
def distilled_meanwhile(run: LiveRun, number: int) -> Iterator[Callable[[], list[str]]]:
    """With `distill.overlap`, what the boundary before left waiting is judged while the block trains segment `number`.

    Yields what waits for the batch and gives the ids of its failures. A block that ends without asking starts no further call.
    """
    failures = run.select(None) if run.config.distill.overlap else []
    if not failures:
        yield list
        return
    finish, asked = _begin(run, number - 1, failures), False

    def judged() -> list[str]:
        nonlocal asked
        asked = True
        run.show_stage("distil", number, f"waiting for {len(failures)} judge calls")
        finish(run.config.distill.max_wait_s)
        return [f.failure_id for f in failures]

    try:
        yield judged
    finally:
        if not asked:
            finish(0.0)


def _begin(run: LiveRun, number: int, failures: Sequence[Failure]) -> Finish:
    return _begin_as_deployment(run, number, failures) if _can_be_retried_alone() else _begin_here(run, number, failures)


def _begin_here(run: LiveRun, number: int, failures: Sequence[Failure]) -> Finish:
    """In a thread of its own, so that training goes on beside it."""
    run_dir, batch = str(run.folder.path.resolve()), run.batch(number, failures)

    def judge_all() -> State:
        with at_work(run_dir, batch):
            return asyncio.run(distill_batch(run_dir, number, [f.failure_id for f in failures], return_state=True))

    thread = ThreadPoolExecutor(1, thread_name_prefix="judge")
    ended = thread.submit(contextvars.copy_context().run, judge_all)
    thread.shutdown(wait=False)

    def finish(patience_s: float) -> None:
        batch.close_in(patience_s)
        state = ended.result()
        if not batch.rows:  # it broke before the calls were done
            state.result()

    return finish


def _can_be_retried_alone() -> bool:
    """Whether this run came from a deployment, on a server that also knows the one for batches."""
    if deployment.id is None:
        return False
    with get_client(sync_client=True) as client:
        try:
            client.read_deployment_by_name(DEPLOYMENT)
        except ObjectNotFound:
            return False
    return True


def _begin_as_deployment(run: LiveRun, number: int, failures: Sequence[Failure]) -> Finish:
    """As a run of its own, in another process of a worker. If none begins it in time, it is cancelled and done here."""
    parameters = {"run_dir": str(run.folder.path.resolve()), "number": number, "failure_ids": [f.failure_id for f in failures]}
    run.folder.judge_table(number).unlink(missing_ok=True)
    started = run_deployment(DEPLOYMENT, parameters=parameters, flow_run_name=f"distil segment {number}", timeout=0)
    begun = time.monotonic()

    def finish(patience_s: float) -> None:
        until = time.monotonic() + patience_s
        with get_client(sync_client=True) as client:
            while not (state := _state(client, started.id)).is_final():
                if (state.is_scheduled() or state.is_pending()) and time.monotonic() > begun + START_S:
                    client.set_flow_run_state(started.id, Cancelled(message="no worker began it; the run judges by itself"), force=True)
                    get_run_logger().warning(f"no worker began {DEPLOYMENT} within {START_S:.0f} s: judging in the run's own process")
                    return _begin_here(run, number, failures)(patience_s)
                if time.monotonic() >= until:
                    get_run_logger().warning(f"going on without the batch of segment {number}: its cards come at a later boundary")
                    return None
                time.sleep(LOOK_S)
        return None

    return finish


def _state(client: SyncPrefectClient, flow_run: UUID) -> State:
    """Of a flow run. A server that is away for a while is no reason to end a run of days: then it is taken to be running."""
    try:
        return client.read_flow_run(flow_run).state
    except httpx.HTTPError as trouble:
        get_run_logger().warning(f"the Prefect server does not say how flow run {flow_run} stands ({trouble}); asking again")
        return Running()
