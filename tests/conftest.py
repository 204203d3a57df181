"""The order of the tests: what starts whole runs and many processes first, so that no worker is left alone with it at the end."""

from pathlib import Path

import pytest

SLOW_FOLDERS = ("flows", "properties")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not any(folder in Path(item.path).parts for folder in SLOW_FOLDERS))
