"""What the command line says to a person who asks for something that cannot be."""

import json

import pytest

from tests.flows.conftest import sesa


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--set", "bank.topk=3"], "did you mean bank.top_k?"),
        (["run", "--preset", "papr"], "did you mean paper?"),
        (["run", "--config", "nowhere.yaml"], "nowhere.yaml"),
        (["run", "--set", "preset=paper"], "choose it with --preset"),
        (["run", "--set", "policy.path=/nowhere"], "policy.path"),
        (["run", "--name", "No Name"], "--name: 'No Name' is not allowed"),
        (["run", "--resume"], "there is nothing to resume"),
        (["run", "--resume", "--set", "seed=1"], "goes on with the settings in its own config.yaml"),
        (["stop"], "no run in runs is running"),
        (["stop", "first"], "there is no run 'first'"),
        (["bank", "list"], "there is no run in runs"),
        (["eval", "--run", "first"], "there is no run 'first'"),
        (["judge", "serve", "--host", "0.0.0.0"], "loopback only"),
        (["config", "show", "--set", "engine=gpu"], "'in_process' or 'ray'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(arguments, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = sesa(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert says in done.stderr
    assert not [p for p in tmp_path.rglob("*") if p.is_file()], "a refused command leaves nothing behind"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["bank", "lst"], "No such command 'lst'. Did you mean 'list'? (see `sesa bank --help`)"),
        (["run", "--nmae", "x"], "No such option: --nmae (Possible options: --name) (see `sesa run --help`)"),
        (["judge", "serve", "--port", "x"], "Invalid value for '--port'"),
        (["bank", "show"], "Missing argument 'card' (see `sesa bank show --help`)"),
        (["bank", "show", "a", "--run"], "Option '--run' requires an argument"),
    ],
)
def test_what_is_no_command_at_all_is_one_line_and_exit_2_too(arguments, says):
    done = sesa(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert says in done.stderr


@pytest.mark.parametrize(("arguments", "code"), [(["bank", "list", "--help"], 0), (["--help"], 0), (["bank"], 2), ([], 2)])
def test_help_is_printed_whether_it_is_asked_for_or_a_command_is_missing(arguments, code):
    done = sesa(*arguments)
    assert (done.returncode, done.stderr) == (code, "")
    assert f"Usage: {' '.join(['sesa', *arguments]).removesuffix(' --help')} " in done.stdout and "--help" in done.stdout


def test_config_show_prints_settings_that_can_be_given_back(tmp_path):
    shown = sesa("config", "show", "--preset", "paper", "--set", "seed=9")
    file = tmp_path / "mine.yaml"
    file.write_text(shown.stdout)
    again = sesa("config", "show", "--config", file, "--json")
    assert json.loads(again.stdout)["seed"] == 9
    assert json.loads(again.stdout)["preset"] == "paper"


def test_config_schema_is_data_too():
    rows = json.loads(sesa("config", "show", "--schema", "--json").stdout)
    assert {"key", "type", "default", "description"} == set(rows[0])
    assert all(row["description"] for row in rows)


def test_a_judge_elsewhere_needs_a_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = sesa("run", "--set", "judge.base_url=https://judge.example/v1")
    assert done.returncode == 2
    hint = "set this environment variable to the key of judge.example"
    assert done.stderr.splitlines()[-1] == f"error: JUDGE_API_KEY is not set; {hint}"
    assert "Traceback" not in done.stderr
