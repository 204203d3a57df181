"""`sesa config`: the settings of a run before it is started."""

from typing import Annotated

import typer

from flows.commands.options import AsJson, ConfigFile, Overrides, Preset
from flows.commands.printing import print_json, print_rows

app = typer.Typer(help="Settings: what they are, what they mean.", no_args_is_help=True)


@app.command("show")
def show(
    preset: Preset = None,
    config: ConfigFile = None,
    overrides: Overrides = None,
    schema: Annotated[bool, typer.Option("--schema", help="Every key with its type, default and meaning.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the settings that a run would have, or what every key means.

    Example: sesa config show --preset paper --set judge.model=gpt-5-mini
    """
    from dataclasses import asdict

    import yaml

    from sesa_core.config.load import config_hash, describe_schema, load_config

    if schema:
        print_rows([asdict(key) for key in describe_schema()], as_json, empty="")
        return
    resolved = load_config(preset, config, overrides or ())
    if as_json:
        print_json(resolved.model_dump(mode="json"))
        return
    typer.echo(f"# hash {config_hash(resolved)}")
    typer.echo(yaml.safe_dump(resolved.model_dump(mode="json"), sort_keys=False, width=120), nl=False)
