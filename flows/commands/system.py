"""`sesa doctor`: does this machine have what a run needs, and do its services answer."""

import typer

from flows.commands.options import AsJson, ConfigFile, Overrides, Preset


def doctor(preset: Preset = None, config: ConfigFile = None, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Check what is installed, and whether model, search, bank and judge answer. Exits with 1 if something needed is missing.

    Example: sesa doctor --set judge.base_url=http://127.0.0.1:8000/v1

    With the settings of a run over your own corpus it reads all of the corpus, targets and questions, and builds the index.
    """
    from dataclasses import asdict

    from flows.commands.printing import print_json
    from flows.doctor import examine
    from sesa_core.config.load import load_config

    settings = load_config(preset, config, overrides or ())
    findings = []
    for finding in examine(settings):
        findings.append(finding)
        if not as_json:
            typer.echo(f"{'ok     ' if finding.ok else 'MISSING'}  {finding.what:<12} {finding.detail}")
    if as_json:
        print_json([asdict(f) for f in findings])
    if not all(f.ok for f in findings):
        raise typer.Exit(1)
