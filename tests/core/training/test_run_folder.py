"""Names, finding, holding and pruning of run folders."""

import subprocess
import sys
from pathlib import Path

import pytest

from sesa_core.config.load import load_config
from sesa_core.errors import ConfigError, MissingRun, UserError
from sesa_core.training.run_folder import RunFolder, create_run, find_run, find_unfinished, hold, is_live, prune_checkpoints


@pytest.fixture
def config(tmp_path):
    return load_config(overrides=[f"runs_dir={tmp_path / 'runs'}"])


def test_runs_count_up_from_the_preset(config):
    assert [create_run(config).name for _ in range(3)] == ["quickstart-001", "quickstart-002", "quickstart-003"]


def test_a_number_is_never_given_twice_even_if_an_earlier_run_is_gone(config, tmp_path):
    create_run(config)
    second = create_run(config)
    RunFolder(tmp_path / "runs" / "quickstart-001").path.rename(tmp_path / "elsewhere")
    assert second.name == "quickstart-002"
    assert create_run(config).name == "quickstart-003"


def test_a_name_is_taken_once_and_the_message_says_how_to_go_on(config):
    create_run(config, "mine")
    with pytest.raises(UserError, match="sesa run --resume --name mine"):
        create_run(config, "mine")


def test_a_start_that_is_killed_before_the_settings_are_written_leaves_no_run_and_takes_no_name(config, tmp_path):
    program = """
import os, sys
from sesa_core.config.models import RunConfig
from sesa_core.training.run_folder import create_run

class Killer(RunConfig):
    def model_dump(self, **how):  # the kill comes between making the folder and filling it
        os._exit(9)

create_run(Killer(runs_dir=sys.argv[1]), "mine")
"""
    assert subprocess.run([sys.executable, "-c", program, config.runs_dir]).returncode == 9
    with pytest.raises(MissingRun):
        find_unfinished(tmp_path / "runs")
    assert create_run(config, "mine").config() == config
    assert [p.name for p in (tmp_path / "runs").iterdir() if p.is_dir()] == ["mine"], "what the kill left behind is gone too"


def test_an_empty_folder_is_taken_and_one_that_holds_other_things_is_not(config, tmp_path):
    (tmp_path / "runs" / "empty").mkdir(parents=True)
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "runs" / "notes" / "diary.txt").touch()
    assert create_run(config, "empty").config() == config
    with pytest.raises(UserError, match="in the way"):
        create_run(config, "notes")


def test_a_command_that_is_printed_finds_its_run(config, tmp_path, monkeypatch):
    elsewhere = create_run(config, "mine")
    assert elsewhere.resume_command == f"sesa run --resume --name mine --runs-dir {tmp_path / 'runs'}"
    monkeypatch.chdir(tmp_path)
    assert RunFolder(Path("runs/mine")).resume_command == elsewhere.resume_command.split(" --runs-dir")[0]
    assert RunFolder(tmp_path / "my runs" / "a").where == f" --runs-dir '{tmp_path / 'my runs'}'"
    with hold(elsewhere), pytest.raises(UserError, match="sesa stop mine$"), hold(elsewhere):
        pass


@pytest.mark.parametrize("name", ["", "Big", "a/b", "-x", "a b", "x" * 64, ".."])
def test_a_name_that_no_folder_or_tag_can_bear_is_refused(config, name):
    with pytest.raises(ConfigError, match="--name"):
        create_run(config, name)


def test_the_settings_are_saved_with_the_run_and_follow_it_when_it_moves(config, tmp_path):
    run = create_run(config, "mine")
    (tmp_path / "runs").rename(tmp_path / "moved")
    moved = find_run(tmp_path / "moved", "mine").config()
    assert moved.runs_dir == str(tmp_path / "moved")
    assert moved.model_copy(update={"runs_dir": config.runs_dir}) == config
    assert run.name == "mine"


def test_an_unknown_run_is_named_with_the_nearest_one(config, tmp_path):
    create_run(config, "first")
    with pytest.raises(MissingRun, match="did you mean first"):
        find_run(tmp_path / "runs", "frist")
    with pytest.raises(MissingRun, match="there is no run"):
        find_run(tmp_path / "nowhere")


def test_resume_takes_the_newest_that_is_not_complete(config, tmp_path):
    first, second = create_run(config), create_run(config)
    assert find_unfinished(tmp_path / "runs").name == second.name
    second.report_file.write_text("{}")
    assert find_unfinished(tmp_path / "runs").name == first.name
    with pytest.raises(MissingRun, match="complete"):
        find_unfinished(tmp_path / "runs", second.name)
    first.report_file.write_text("{}")
    with pytest.raises(MissingRun, match="every run"):
        find_unfinished(tmp_path / "runs")


def test_a_run_is_held_by_one_and_is_live_only_while_held(config):
    run = create_run(config)
    assert not is_live(run)
    with hold(run):
        assert is_live(run)
        with pytest.raises(UserError, match="another process"), hold(run):
            pass
    assert not is_live(run)


def test_pruning_keeps_what_it_is_told_to_and_all_evidence(config):
    run = create_run(config)
    for segment, attempt in [(1, 1), (2, 1), (3, 1), (3, 2)]:
        (run.segment_dir(segment) / f"attempt-{attempt}" / "checkpoints").mkdir(parents=True)
        (run.segment_dir(segment) / f"attempt-{attempt}" / "evidence.jsonl").touch()
    gone = prune_checkpoints(run, kept={(2, 1), (3, 2)})
    left = sorted(p.relative_to(run.path).as_posix() for p in run.path.rglob("checkpoints"))
    assert left == ["segments/00002/attempt-1/checkpoints", "segments/00003/attempt-2/checkpoints"]
    assert len(gone) == 2
    assert len(list(run.path.rglob("evidence.jsonl"))) == 4
    assert prune_checkpoints(run, kept={(2, 1), (3, 2)}) == []
