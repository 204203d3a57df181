"""`sesa judge`: the built-in judge, whether a judge answers, what waits for it, what it said, what it has cost."""

from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.bank.opening import By, Place, Uri, Why
from flows.commands.options import RUNS_DIR, AsJson, ConfigFile, Overrides, Preset, RunName, RunsDir
from flows.commands.printing import counted, print_json, print_rows

if TYPE_CHECKING:
    from sesa_core.bank.replies import StoredReply

SHOWN_CHARS = 300  # of a reply's text on a terminal
app = typer.Typer(help="The judge that distils failures into skill cards.", no_args_is_help=True)


@app.command("serve")
def serve(
    host: Annotated[str, typer.Option("--host", help="Loopback address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0 takes a free one.", min=0, max=65535)] = 8900,
    faults: Annotated[
        str,
        typer.Option(
            "--faults", help="Faults for tests, call by call: NAME, NAME*COUNT, or NAME* for ever. `ok` is no fault.", metavar="PLAN"
        ),
    ] = "",
) -> None:
    """Serve the built-in judge: OpenAI's chat completions on loopback, until Ctrl-C.

    With --faults it misbehaves as real endpoints do: the example answers seven calls and says 429 to every later one. A wrong name
    lists the right ones.

    Example: sesa judge serve --port 8900 --faults "ok*7,rate_limit*"
    """
    from sesa_core.judge.server import MODEL, serve

    def announce(address: str) -> None:
        typer.echo(f"judge at {address}, model {MODEL}; use it with --set judge.base_url={address}")

    serve(host, port, announce, faults)


@app.command("check")
def check(preset: Preset = None, config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Make one small round trip to the judge that the settings name, and say what it supports.

    Example: sesa judge check --set judge.base_url=http://127.0.0.1:8000/v1 --set judge.model=qwen3
    """
    from dataclasses import asdict

    from flows.composition import check_judge, open_judge
    from sesa_core.config.load import load_config

    settings = load_config(preset, config, overrides or ())
    with open_judge(settings) as judge:
        status = check_judge(judge)
    if as_json:
        print_json({"address": judge.address, **asdict(status)})
        return
    listed = "listed" if status.model_listed else "the server lists no models"
    structured = (
        "structured output" if status.structured_output else "no structured output: replies are read as JSON in text, or line by line"
    )
    typer.echo(f"judge at {judge.address}: answers in {status.seconds:.2f} s\nmodel {status.model}: {listed}\n{structured}")


@app.command("pending")
def pending(run: RunName = None, bank: Uri = None, runs_dir: RunsDir = RUNS_DIR, as_json: AsJson = False) -> None:
    """List the failures that wait for the judge, with what came of earlier calls about them.

    Example: sesa judge pending --run first
    """
    from sesa_core.bank.tables import PENDING

    print_rows(_failures(Place(bank, run, runs_dir), PENDING), as_json, "no failure waits for the judge")


@app.command("dead")
def dead(run: RunName = None, bank: Uri = None, runs_dir: RunsDir = RUNS_DIR, as_json: AsJson = False) -> None:
    """List the failures that the judge was asked about too often without a usable reply, with the reasons.

    Example: sesa judge dead --run first --json
    """
    from sesa_core.bank.tables import DEAD

    print_rows(_failures(Place(bank, run, runs_dir), DEAD), as_json, "no failure was given up")


def _failures(place: Place, state: str) -> list[dict[str, object]]:
    with place.opened() as bank:
        records = [r for r in bank.store.read_failures() if r.state == state]
        trouble = bank.store.judge_trouble([r.failure.failure_id for r in records])
    rows = []
    for record in sorted(records, key=lambda r: (r.failure.step, r.failure.failure_id)):
        told = trouble[record.failure.failure_id]
        shown = {"failure": record.failure.failure_id, "step": record.failure.step, "calls_without_a_card": len(told)}
        rows.append(shown | {"last_trouble": told[-1] if told else None, "question": record.failure.question})
    return rows


@app.command("replay")
def replay(
    failures: Annotated[
        list[str] | None,
        typer.Argument(metavar="FAILURE", help="Ids of failures.", show_default="all about which a reply is stored"),
    ] = None,
    run: RunName = None,
    bank: Uri = None,
    runs_dir: RunsDir = RUNS_DIR,
    as_json: AsJson = False,
) -> None:
    """Read stored judge replies again: what each said, what it was taken for when it came, and what it is taken for today.

    No call is made and nothing is written. Calls that brought no reply are left out.

    Example: sesa judge replay --run first --json
    """
    from sesa_core.errors import UserError

    with Place(bank, run, runs_dir).opened() as opened:
        stored = opened.store.stored_replies(failures)
    missing = sorted(set(failures or ()) - {s.reply.failure_id for s in stored})
    if missing:
        raise UserError(f"no reply about {', '.join(missing)} is stored; `sesa judge pending` and `sesa judge dead` list failures")
    rows = [_read_again(s) for s in stored]
    if as_json:
        print_json(rows)
        return
    for number, row in enumerate(rows):
        if number == 0 or row["failure"] != rows[number - 1]["failure"]:
            typer.echo(f"failure {row['failure']}")
        _print_replay(row)
    differ = sum(bool(row["differs"]) for row in rows)
    typer.echo(f"{len(rows)} stored, {differ} read differently today" if rows else "no reply is stored")


def _read_again(stored: "StoredReply") -> dict[str, object]:
    from dataclasses import asdict

    from sesa_core.judge.replies import ParsedCard, read_again

    reply = stored.reply
    told = {"failure": reply.failure_id, "boundary": stored.boundary_id, "model": reply.model, "prompt_hash": reply.prompt_hash}
    then, now = ParsedCard(reply.state, reply.draft, reply.reason), read_again(reply)
    for name, read in (("recorded", then), ("today", now)):
        told[name] = {"state": str(read.state), "reason": read.reason, "draft": asdict(read.draft) if read.draft is not None else None}
    return told | {"differs": then != now, "reply": reply.reply}


def _print_replay(row: dict) -> None:
    text, left = row["reply"][:SHOWN_CHARS], len(row["reply"]) - SHOWN_CHARS
    lines = [f"for boundary {row['boundary']}, model {row['model']}, prompt {row['prompt_hash']}"]
    lines += [f"  | {line}" for line in (text + (f" … {left} characters more" if left > 0 else "")).split("\n")]
    for name in ("recorded", "today"):
        state, reason, draft = (row[name][k] for k in ("state", "reason", "draft"))
        said = f"{state}: {reason}" if draft is None else f"{state}: {draft['category']}, {draft['pattern']}"
        lines.append(f"  {name:<9} {said}{'   <- differs' if name == 'today' and row['differs'] else ''}")
    for line in lines:  # a reply may hold what a terminal obeys
        typer.echo("  " + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line))


@app.command("cost")
def cost(run: RunName = None, bank: Uri = None, runs_dir: RunsDir = RUNS_DIR, as_json: AsJson = False) -> None:
    """Sum up what the judge calls of a run used, by model and by what came of them.

    Money is counted with the prices that the settings had when a call was made; without prices it is 0.

    Example: sesa judge cost --run first
    """
    with Place(bank, run, runs_dir).opened() as opened:
        calls = opened.store.judge_calls()
    rows = []
    for model, state in sorted({(c.model, c.state) for c in calls}):
        used = [c.usage for c in calls if (c.model, c.state) == (model, state)]
        tokens = {n: sum(getattr(u, n) for u in used) for n in ("prompt_tokens", "completion_tokens")}
        money = {"cost": round(sum(u.cost for u in used), 6), "seconds": round(sum(u.seconds for u in used), 1)}
        rows.append({"model": model, "reply": state, "calls": len(used), **tokens, **money})
    print_rows(rows, as_json, "the judge was never asked")


@app.command("retry")
def retry(
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    dead: Annotated[bool, typer.Option("--dead", help="Also about failures that were given up.")] = False,
    by: By = None,
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Call the judge again about exactly those failures whose calls brought no usable reply, and commit the cards as a boundary.

    While the run is being trained only the replies are stored; its next boundary takes them in. Exits with 1 if calls failed again.

    Example: sesa judge retry --run first
    """
    from flows.judgements import retry_failed
    from sesa_core.config.environment import person
    from sesa_core.training.run_folder import find_run

    done = retry_failed(find_run(runs_dir, run), dead=dead, by=by or person(), why=why)
    if as_json:
        print_json(done.as_json())
    else:
        typer.echo(f"{counted(done.asked, 'call')} to the judge, {len(done.trouble)} without a usable reply")
        for failure, trouble in list(done.trouble.items())[:5]:
            typer.echo(f"  {failure}: {trouble}")
        if done.left_to_run:
            typer.echo("the run is being trained: its next boundary takes the replies in")
        if (report := done.report) is not None:
            typer.echo(
                f"boundary {report.boundary_id} ({report.tag}): {counted(len(report.added), 'card')} added, {len(report.refused)} refused"
            )
    if done.trouble:
        raise typer.Exit(1)
