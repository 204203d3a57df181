"""How commands print: JSON for programs, a table for people."""

import json
from collections.abc import Mapping, Sequence

import typer
from rich.console import Console
from rich.table import Table

WIDE = 400  # columns where there is no terminal to fit


def print_json(content: object) -> None:
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False, default=str))


def counted(count: int, what: str) -> str:
    """`1 card`, `2 cards`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def print_rows(rows: Sequence[Mapping[str, object]], as_json: bool, empty: str) -> None:
    """Rows with the same keys. `empty` is what a person reads when there are none; JSON is then `[]`."""
    if as_json:
        print_json(list(rows))
        return
    if not rows:
        typer.echo(empty)
        return
    table = Table(*rows[0], box=None, pad_edge=False, header_style="bold")
    table.columns[0].no_wrap = True  # mostly an id: another column gives way
    for row in rows:
        table.add_row(*("" if value is None else str(value) for value in row.values()))
    console, wide = Console(), Console(width=WIDE, highlight=False, markup=False)
    # a pipe has no width of its own, and in a terminal too narrow for the longest words what a person greps for would be cut
    fits = console.is_terminal and wide.measure(table).minimum <= console.width
    (Console(highlight=False, markup=False) if fits else wide).print(table, soft_wrap=not fits)
