import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from prefect.settings import PREFECT_SERVER_DATABASE_CONNECTION_URL, temporary_settings

from flows.prefect_database import NAME
from flows.prefect_database import prepare as prepare_here
from tests.flows.conftest import environment

PREPARE = "import sys; from pathlib import Path; from flows.prefect_database import prepare; prepare(Path(sys.argv[1]), Path(sys.argv[2]))"


def prepare(home: Path, cache: Path, **more: str) -> None:
    home.mkdir()
    in_process(home, cache, **more)


def in_process(home: Path, cache: Path, **more: str) -> None:
    quiet = environment(PREFECT_HOME=str(home), PREFECT_SERVER_ANALYTICS_ENABLED="false", **more)
    subprocess.run([sys.executable, "-c", PREPARE, home, cache], env=quiet, check=True)


def schema(database: Path) -> list[tuple]:
    with contextlib.closing(sqlite3.connect(database)) as opened:
        return opened.execute("select type, name, sql from sqlite_master order by name").fetchall()


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    """A cache folder that the first run has made."""
    folder = tmp_path_factory.mktemp("prefect")
    prepare(folder / "first", folder / "cache")
    return folder / "cache"


def test_the_first_run_makes_the_template_and_the_next_copies_it(cache, tmp_path):
    (template,) = cache.iterdir()
    before = template.read_bytes()
    prepare(tmp_path / "second", cache)
    first = cache.parent / "first" / NAME
    assert schema(first) == schema(template) == schema(tmp_path / "second" / NAME)
    assert {"flow_run", "task_run", "alembic_version"} <= {name for _, name, _ in schema(first)}
    assert (template.read_bytes(), list(cache.iterdir())) == (before, [template])
    assert [p.name for p in (tmp_path / "second").iterdir()] == [NAME]


def test_a_database_that_is_there_or_elsewhere_is_left_alone(cache, tmp_path):
    prepare(tmp_path / "elsewhere", cache, PREFECT_SERVER_DATABASE_CONNECTION_URL="sqlite+aiosqlite:////nowhere/prefect.db")
    assert not (tmp_path / "elsewhere" / NAME).exists()
    home = tmp_path / "there"
    home.mkdir()
    (home / NAME).write_text("mine")
    in_process(home, cache)
    assert (home / NAME).read_text() == "mine"


def test_without_a_cache_folder_a_run_has_its_database_all_the_same(tmp_path):
    database = tmp_path / NAME
    (tmp_path / "file").write_text("")
    with temporary_settings({PREFECT_SERVER_DATABASE_CONNECTION_URL: f"sqlite+aiosqlite:///{database}"}):
        prepare_here(tmp_path, tmp_path / "file" / "cache", migrate=lambda: database.write_text("migrated") and None)
    assert database.read_text() == "migrated"
