"""`sesa ablate`: an ablation, seen from a terminal."""

import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.options import STOPPED, AsJson, ConfigFile, Overrides, Preset

if TYPE_CHECKING:
    from rich.console import Group

    from flows.ablate import Bench, CellRun, Settings, Status

ABLATION_DIR = Path("runs/ablation")
STOPPING = "running cells stop after their current step; Ctrl-C again breaks them off at once"


def ablate(
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    arms: Annotated[str | None, typer.Option("--arms", help="Arms to run, commas between.", show_default="all that ship")] = None,
    own_arms: Annotated[
        list[str] | None, typer.Option("--arm", help="An arm of your own; may be repeated.", metavar="NAME:KEY=VALUE,KEY=VALUE")
    ] = None,
    seeds: Annotated[str, typer.Option("--seeds", help="Seeds of every arm: 0-4, or 0,3,7.")] = "0-4",
    segments: Annotated[int | None, typer.Option("--segments", help="Segments of every cell.", show_default="the preset's", min=1)] = None,
    jobs: Annotated[int, typer.Option("--jobs", help="Cells at the same time; each takes engine.threads cores.", min=1)] = 1,
    runs_dir: Annotated[Path, typer.Option("--runs-dir", help="Folder that holds the cells of this experiment.")] = ABLATION_DIR,
    out: Annotated[Path | None, typer.Option("--out", help="Write the document here, after every finished cell.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Start nothing; print how the cells stand and what they show.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure what each part of the method is worth: every arm with every seed, each cell one run.

    Start the same command again to go on: finished cells are read, broken-off ones resumed, failed ones tried again. Ctrl-C lets
    running cells end their step. Exits with 1 if a cell failed.

    Example: sesa ablate --preset quickstart --seeds 0-4 --jobs 2 --out ablation.md
    """
    from flows.ablate import Bench, Settings, lay_out
    from sesa_core.errors import ConfigError
    from sesa_core.evaluation.ablation.arms import choose_arms

    settings = Settings(preset, config, tuple(overrides or ()), segments)
    chosen = choose_arms(arms, own_arms or [])
    cells = lay_out(chosen, parse_seeds(seeds), settings, runs_dir)
    command = shlex.join(_command(settings, arms, own_arms or [], seeds))
    publish = _publisher(cells, command, None if show else out)
    if show:
        bench = Bench(cells, jobs, lambda cell: None, lambda: None)
        _print_state(bench, publish, as_json, whole=True)
        return
    refuse_overload(jobs, cells)
    if out is not None and not out.absolute().parent.is_dir():
        raise ConfigError("--out", str(out), f"{out.absolute().parent} is no folder: a night's work would have nowhere to go")
    bench = _run(cells, jobs, publish, quiet=as_json)
    _print_state(bench, publish, as_json, whole=out is None)
    _leave(bench)


def parse_seeds(text: str) -> list[int]:
    """`0-4` or `0,3,7` or both. Raises ConfigError."""
    from sesa_core.errors import ConfigError

    hint = "write seeds as 0-4, or 0,3,7; each once"
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigError("--seeds", text, hint)
        seeds += range(int(first), int(last or first) + 1)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ConfigError("--seeds", text, hint)
    return seeds


def refuse_overload(jobs: int, cells: Sequence["CellRun"]) -> None:
    """Raises ConfigError if the cells would want more cores than there are: each would be slower than one after the other."""
    from sesa_core.errors import ConfigError

    cores, threads = len(os.sched_getaffinity(0)), max(cell.config.engine.threads for cell in cells)
    if jobs > 1 and jobs * threads > cores:
        raise ConfigError("--jobs", jobs, f"each cell takes {threads} of the {cores} cores here; at most {max(1, cores // threads)} fit")


def _command(settings: "Settings", arms: str | None, own_arms: Sequence[str], seeds: str) -> list[str]:
    """What makes the document again, without what changes no number in it."""
    size = ["--segments", str(settings.segments)] if settings.segments is not None else []
    which = ["--arms", arms] if arms is not None else []
    own = [part for arm in own_arms for part in ("--arm", arm)]
    changes = [part for override in settings.overrides for part in ("--set", override)]
    return ["sesa", "ablate", *settings.options(), *which, *own, "--seeds", seeds, *size, *changes]


def _publisher(cells: Sequence["CellRun"], command: str, out: Path | None) -> Callable[[Sequence["Status"]], str]:
    from flows.ablate import experiment
    from sesa_core.evaluation.ablation.document import document

    def publish(statuses: Sequence["Status"]) -> str:
        """The document as the cells stand; written to `out`, whole or not at all."""
        text = document(experiment(cells, statuses, command))
        if out is not None:
            partial = out.with_name(out.name + ".partial")
            partial.write_text(text)
            os.replace(partial, out)
        return text

    return publish


def _run(cells: Sequence["CellRun"], jobs: int, publish: Callable[[Sequence["Status"]], str], quiet: bool) -> "Bench":
    """Run what is left, with a table that is drawn again at every look, or on a pipe a line for every change."""
    from filelock import FileLock, Timeout
    from rich.console import Console
    from rich.live import Live

    from flows.ablate import Bench
    from sesa_core.errors import UserError

    runs_dir = cells[0].runs_dir
    runs_dir.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=quiet, highlight=False)
    live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
    told: dict[str, str] = {}

    def looked() -> None:
        statuses = bench.statuses()
        if live is not None:
            live.update(cell_table(cells, statuses, STOPPING if bench.wishes else ""), refresh=True)
            return
        for cell, status in zip(cells, statuses, strict=True):
            text = str(status)
            if status.kind != "waiting" and told.get(cell.folder.name) != text:
                told[cell.folder.name] = text
                typer.echo(f"{time.strftime('%H:%M:%S')} {cell.folder.name}: {text}", err=quiet)

    bench = Bench(cells, jobs, lambda cell: publish(bench.statuses()), looked)
    try:
        with FileLock(runs_dir / ".ablation.lock", timeout=0), _interrupts(bench, tell=live is None), live or nullcontext():
            publish(bench.statuses())
            bench.run()
    except Timeout:
        raise UserError(f"another `sesa ablate` is at work in {runs_dir}; look at it with --show") from None
    return bench


@contextmanager
def _interrupts(bench: "Bench", tell: bool) -> Iterator[None]:
    """The first Ctrl-C lets running cells end their step, the second breaks them off; SIGTERM is a Ctrl-C too.

    Set here even where the shell had us ignore it, as it does for what it starts in the background.
    """

    def ask(number: int, frame: object) -> None:
        bench.ask_to_stop()
        if tell:
            typer.echo(STOPPING if bench.wishes == 1 else "breaking off", err=True)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def cell_table(cells: Sequence["CellRun"], statuses: Sequence["Status"], note: str = "") -> "Group":
    """One row per arm, one column per seed; failures are spelt out below."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    seeds = sorted({cell.seed for cell in cells})
    table = Table("arm", *(f"seed {seed}" for seed in seeds), box=None, pad_edge=False, header_style="bold")
    standing = {(c.arm.name, c.seed): s for c, s in zip(cells, statuses, strict=True)}
    for arm in dict.fromkeys(cell.arm.name for cell in cells):
        shown = (standing[arm, seed] for seed in seeds)
        table.add_row(arm, *("failed" if s.kind == "failed" else str(s) for s in shown))
    failed = [f"{c.folder.name}: {s.reason} (see {c.screen_file})" for c, s in zip(cells, statuses, strict=True) if s.kind == "failed"]
    lines = ["done: greedy accuracy after training, with the bank where it is measured", *failed, *([note] if note else [])]
    return Group(table, *map(Text, lines))


def _print_state(bench: "Bench", publish: Callable[[Sequence["Status"]], str], as_json: bool, whole: bool) -> None:
    from dataclasses import asdict

    from rich.console import Console

    from flows.commands.printing import print_json

    statuses = bench.statuses()
    if as_json:
        rows = zip(bench.cells, statuses, strict=True)
        print_json([{"arm": c.arm.name, "seed": c.seed, "run": str(c.folder.path), **asdict(s)} for c, s in rows])
        return
    text = publish(statuses)
    console = Console(highlight=False, markup=False)
    Console(width=None if console.is_terminal else 400, highlight=False, markup=False).print(cell_table(bench.cells, statuses))
    if whole:
        typer.echo("\n" + text)


def _leave(bench: "Bench") -> None:
    """130 if a person stopped it, 1 if a cell failed."""
    statuses = bench.statuses()
    left = [c.folder.name for c, s in zip(bench.cells, statuses, strict=True) if s.kind != "done"]
    if left and bench.wishes:
        done = len(statuses) - len(left)
        typer.echo(f"stopped; {done} of {len(statuses)} cells are done. Start the same command again to go on", err=True)
        raise typer.Exit(STOPPED)
    if left:
        typer.echo(f"error: not done: {', '.join(left)}. Start the same command again to try them again", err=True)
        raise typer.Exit(1)
