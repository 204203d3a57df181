"""Every command has help with an example and stands in the README's table, and nothing else does."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

from flows.cli import app
from flows.form import TrainForm
from sesa_core.config.load import presets
from sesa_core.evaluation.ablation.arms import ARMS

README = Path(__file__).parents[2] / "README.md"


def commands(command: click.Command, path: tuple[str, ...] = ("sesa",)) -> Iterator[tuple[str, click.Command]]:
    children = getattr(command, "commands", None)
    if not children:
        yield " ".join(path), command
        return
    for child_name, child in children.items():
        yield from commands(child, (*path, child_name))


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_explains_itself_with_an_example(name):
    text = COMMANDS[name].help or ""
    assert f"Example: {name}" in " ".join(text.split())
    assert all(getattr(p, "help", None) for p in COMMANDS[name].params), "every option has a help text"


def test_the_readme_table_lists_exactly_the_commands():
    listed = re.findall(r"^\| `(sesa[a-z -]*?)(?: [^`a-z][^`]*)?` \|", README.read_text(), flags=re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)


def test_whoever_chooses_a_preset_is_told_of_all():
    """At the command line, in the form of the Prefect UI and in the README."""
    asked = [p.help for command in COMMANDS.values() for p in command.params if p.name == "preset"]
    assert asked
    for text in (*asked, TrainForm.model_fields["preset"].description, README.read_text().partition("## Settings")[2]):
        assert not [name for name in presets() if name not in text]


def test_the_readme_says_what_every_shipped_arm_changes():
    section = README.read_text().partition("## What each part is worth")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)
    assert sorted(["full", *told]) == sorted(ARMS)


@pytest.mark.parametrize("name", COMMANDS)
def test_no_help_text_is_taken_for_markup(name):
    """What stands in square brackets would vanish from the screen ("sesa[world]" became "sesa") unless it is escaped."""
    texts = [COMMANDS[name].help or "", *(getattr(p, "help", None) or "" for p in COMMANDS[name].params)]
    assert not [text for text in texts if re.search(r"(?<!\\)\[[a-z/@#]", text)]
