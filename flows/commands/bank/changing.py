"""`sesa bank suspend|activate|approve|edit|evict|restore`: each change is a boundary of its own."""

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.commands.bank.opening import By, CardId, CardIds, Place, Uri, Why, say
from flows.commands.options import RUNS_DIR, AsJson, RunName, RunsDir


def suspend(
    cards: CardIds,
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    bank: Uri = None,
    by: By = None,
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Keep cards but show them no more, until they are activated again.

    Example: sesa bank suspend card-46006b9b2776 --why "sends the solver to the wrong river"
    """
    with Place(bank, run, runs_dir).opened(write=True, by=by) as opened:
        say(opened.suspend(cards, why), as_json)


def activate(
    cards: CardIds,
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    bank: Uri = None,
    by: By = None,
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Show suspended cards again.

    Example: sesa bank activate card-46006b9b2776
    """
    with Place(bank, run, runs_dir).opened(write=True, by=by) as opened:
        say(opened.activate(cards, why), as_json)


def approve(
    cards: CardIds,
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    bank: Uri = None,
    by: By = None,
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Let candidates become active; `sesa bank list --state candidate` lists them.

    Example: sesa bank approve card-46006b9b2776 card-0c7d51a2b9e4
    """
    with Place(bank, run, runs_dir).opened(write=True, by=by) as opened:
        say(opened.approve(cards, why), as_json)


def edit(
    card: CardId,
    fields: Annotated[
        list[str] | None, typer.Option("--set", help="A field and its new value in YAML; may be repeated.", metavar="FIELD=VALUE")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="YAML or JSON of fields and their new values.", metavar="FILE")] = None,
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    bank: Uri = None,
    by: By = None,
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Change what a card says or where it holds. It keeps its id and counters and must pass what any card must pass.

    Example: sesa bank edit seed-units --set 'trigger_keywords=\\[unit, metres, feet]' --why "metres were missing"
    """
    changes = _changes(fields or [], file)
    with Place(bank, run, runs_dir).opened(write=True, by=by) as opened:
        say(opened.edit(card, changes, why), as_json)


def _changes(fields: list[str], file: Path | None) -> dict[str, Any]:
    import yaml

    from sesa_core.errors import ConfigError

    texts = [("--file", str(file), _text(file))] if file is not None else []
    for field in fields:
        name, equals, value = field.partition("=")
        if not equals or not name.strip():
            raise ConfigError("--set", field, 'write field=value, as in --set "pattern=The question names a date"')
        texts.append(("--set", field, f"{name.strip()}: {value}"))
    changes: dict[str, Any] = {}
    for option, given, text in texts:
        try:
            found = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(option, given, f"it is not YAML: {' '.join(str(error).split())[:200]}") from error
        if not isinstance(found, dict):
            raise ConfigError(option, given, "it must hold fields and their values")
        changes |= found
    if not changes:
        raise ConfigError("--set", None, "give at least one field with --set or --file")
    return changes


def _text(file: Path) -> str:
    from sesa_core.errors import ConfigError

    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("--file", str(file), f"the file cannot be read: {getattr(error, 'strerror', None) or error}") from error


def evict(
    cards: CardIds,
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    bank: Uri = None,
    by: By = None,
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Remove cards; a tombstone keeps each lesson out until you restore it. Seeds are not evicted, only suspended.

    Example: sesa bank evict card-46006b9b2776 --why "true of one country only"
    """
    with Place(bank, run, runs_dir).opened(write=True, by=by) as opened:
        say(opened.evict(cards, why), as_json)


def restore(
    card: Annotated[str | None, typer.Argument(help="An evicted card, as `sesa bank tombstones` prints it.")] = None,
    to: Annotated[str | None, typer.Option("--to", help="Instead of a card the whole bank: a boundary, named as for --at.")] = None,
    keep_counters: Annotated[
        bool, typer.Option("--keep-counters", help="The card comes back with what it had earned; the next boundary may evict it for that.")
    ] = False,
    run: RunName = None,
    runs_dir: RunsDir = RUNS_DIR,
    bank: Uri = None,
    by: By = None,
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Bring back an evicted card, or with --to the whole bank as it was, as a new boundary: nothing later is lost.

    A card comes back with its counters at 0, for a new trial; what it had done stays in its history.

    Example: sesa bank restore card-46006b9b2776 --why "it was right after all"
    """
    from sesa_core.errors import ConfigError

    if (card is None) == (to is None) or (keep_counters and card is None):
        raise ConfigError("restore", card or to, "name one card, or with --to the boundary that the whole bank goes back to")
    with Place(bank, run, runs_dir).opened(write=True, by=by) as opened:
        say(opened.restore_card(card, why, keep_counters=keep_counters) if card is not None else opened.restore_to(to, why), as_json)
