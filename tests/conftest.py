"""The order of the tests: what starts whole runs and many processes first, so that no worker is left alone with it at the end."""

from pathlib import Path

import pytest

SLOW = {"flows", "properties", "test_ray_host.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: SLOW.isdisjoint(Path(item.path).parts))
