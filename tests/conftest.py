"""What tests of several folders share, and their order: what starts whole runs and many processes comes first, so that no worker is
left alone with it at the end."""

import multiprocessing
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

SLOW = {"flows", "properties", "test_ray_host.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: SLOW.isdisjoint(Path(item.path).parts))


@pytest.fixture(scope="session")
def processes() -> ForkServerContext:
    """Processes from a fork server that has imported what is slow, but not LanceDB itself: no thread survives a fork, and it starts one."""
    context = multiprocessing.get_context("forkserver")
    slow = ["great_expectations.expectations", "lance_namespace", "pandas", "pyarrow", "wordllama"]
    context.set_forkserver_preload([*slow, "tests.bank_support"])
    return context
