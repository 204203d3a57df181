"""Tables for people: in a terminal they fit it, and whatever its width no id and no number is cut."""

import pytest

from flows.commands.printing import print_rows

ROW = {"card": "seed-current-or-former", "uses": 71, "pattern": "The answer changes with time"}


@pytest.fixture
def printed(monkeypatch, capsys):
    """The lines of a table on a terminal of so many columns."""

    def lines(columns: int) -> list[str]:
        monkeypatch.setenv("FORCE_COLOR", "1")  # taken for a terminal
        monkeypatch.setenv("COLUMNS", str(columns))
        print_rows([ROW], False, empty="")
        return [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    return lines


def test_a_long_text_is_folded_inside_its_column(printed):
    _, *rows = printed(46)  # 22 + 2 + 4 + 2 leave 16 for the pattern
    assert rows == ["seed-current-or-former  71    The answer", " " * 30 + "changes with", " " * 30 + "time"]


def test_where_the_longest_words_do_not_fit_the_terminal_folds_the_line(printed):
    _, row = printed(36)
    assert row == "seed-current-or-former  71    The answer changes with time"
