"""What tests of several folders share, and their order: what starts whole runs and many processes comes first, so that no worker is
left alone with it at the end."""

import multiprocessing
import os
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

CACHE = ".pytest_cache/home"  # beside pytest's own; in place of the user's cache folder, for this process and all that it starts
SLOW = {"flows", "properties", "test_ray_host.py"}


def pytest_configure(config: pytest.Config) -> None:
    os.environ["XDG_CACHE_HOME"] = str(config.rootpath / CACHE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: SLOW.isdisjoint(Path(item.path).parts))


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    """Processes from a fork server that has imported what is slow, but not LanceDB itself: no thread survives a fork, and it starts one."""
    context = multiprocessing.get_context("forkserver")
    slow = ["great_expectations.expectations", "lance_namespace", "pandas", "pyarrow", "wordllama"]
    context.set_forkserver_preload([*slow, "tests.bank_support"])
    return context
