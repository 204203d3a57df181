"""An empty Prefect database, made once for each version of Prefect and copied for every run.

Prefect brings a new database to its schema by some hundred migrations, eight seconds of a core at the start of every run. The
copies come from the user's cache folder. Invariant: a copy, and the template, appear whole or not at all. Edge cases: where the cache
cannot be read or written, or a person keeps Prefect's data elsewhere, everything is as Prefect does it; a migration that was killed
in the middle is carried on by Prefect itself.
"""

import asyncio
import contextlib
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import platformdirs

NAME = "prefect.db"


def prepare(home: Path, cache: Path | None = None, migrate: Callable[[], None] | None = None) -> None:
    """Put a migrated database into `home`, Prefect's own folder (PREFECT_HOME), if it has none yet.

    `migrate` makes it there from nothing; None: as Prefect does.
    """
    import prefect
    from prefect.settings import get_current_settings

    database = home / NAME
    configured = get_current_settings().server.database.connection_url
    if database.exists() or configured is None or not configured.get_secret_value().endswith(str(database.resolve())):
        return
    for log in (f"{NAME}-wal", f"{NAME}-shm"):  # of a database that somebody deleted: no log of ours
        (home / log).unlink(missing_ok=True)
    template = (cache or platformdirs.user_cache_path("sesa")) / f"prefect-{prefect.__version__}.db"
    with contextlib.suppress(OSError):
        _appear(database, lambda partial: shutil.copyfile(template, partial))
        return
    (migrate or _migrate)()
    with contextlib.suppress(OSError, sqlite3.Error):
        template.parent.mkdir(parents=True, exist_ok=True)
        _appear(template, lambda partial: _back_up(database, partial))


def _migrate() -> None:
    from prefect.server.database import provide_database_interface

    async def create() -> None:
        interface = provide_database_interface()
        await interface.create_db()
        await (await interface.engine()).dispose()

    asyncio.run(create())


def _back_up(database: Path, copy: Path) -> None:
    """Through SQLite, which also knows what still stands in the database's log."""
    with contextlib.closing(sqlite3.connect(database)) as source, contextlib.closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def _appear(path: Path, write: Callable[[Path], object]) -> None:
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
