"""A world of one's own files: what is read from them, and what each wrong row is refused with."""

import json
from pathlib import Path

import pytest

from sesa_core.errors import ConfigError
from sesa_core.types import Target
from sesa_core.world.base import HeldOutQuestion
from sesa_core.world.files import CORPUS_FILE, QUESTIONS_FILE, TARGETS_FILE, FilesWorld
from sesa_core.world.passages import Document

PASSAGE = '{"id": "1", "contents": "Chad\\nCountry in Africa."}'
TARGET = '{"answer": "Paris", "aliases": [], "hops": 1}'
QUESTION = '{"question": "Who wrote Emma?", "golden_answers": ["Jane Austen"]}'


def world(folder: Path, **contents: str | bytes) -> Path:
    """A folder with one right row in each file but those that are given."""
    folder.mkdir(exist_ok=True)
    for name, row in (("corpus", PASSAGE), ("targets", TARGET), ("questions", QUESTION)):
        given = contents.get(name, row)
        (folder / f"{name}.jsonl").write_bytes(given.encode() if isinstance(given, str) else given)
    return folder


def refusal(folder: Path) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        FilesWorld(folder).check()
    return refused.value


def test_passages_are_search_r1s_rows(tmp_path):
    rows = [
        {"id": "7", "contents": '"Chad"\nCountry in Africa.\nCapital: N\'Djamena.'},
        {"id": 8, "contents": "Mali\nCountry.", "more": [1]},
        {"id": "9", "contents": "Title alone"},
    ]
    found = FilesWorld(world(tmp_path, corpus="\n".join(map(json.dumps, rows)))).documents
    text = "Country in Africa.\nCapital: N'Djamena."
    expected = [
        Document("7", "Chad", text, text),
        Document("8", "Mali", "Country.", "Country."),
        Document("9", "Title alone", "", ""),
    ]
    assert found.count == 3
    assert list(found) == list(found) == expected, "a stream that can be read again"


def test_targets_are_answers_with_their_other_names_hops_and_perhaps_a_relation(tmp_path):
    rows = [
        {"answer": "The Paris", "aliases": ["City of Light"], "hops": 2, "relation": "capital"},
        {"answer": "The Paris", "aliases": [], "hops": 2},
        {"answer": "paris", "aliases": [], "hops": 3},
    ]
    found = FilesWorld(world(tmp_path, targets="\n".join(map(json.dumps, rows)))).targets()
    assert found == (
        Target("capital/paris/2", "The Paris", 2, ("City of Light",), "capital"),
        Target("paris/2", "The Paris", 2),
        Target("paris/3", "paris", 3),
    )


def test_questions_are_short_rows_or_verls(tmp_path):
    verls = {
        "data_source": "searchR1_nq",
        "prompt": [{"role": "user", "content": "Answer the question. Question: who wrote emma"}],
        "ability": "fact-reasoning",
        "reward_model": {"style": "rule", "ground_truth": {"target": ["Jane Austen", "Austen"]}},
        "extra_info": {"split": "train", "index": 0, "question": "who wrote emma"},
    }
    short = {"question": "What is 3 + 4?", "golden_answers": ["7", "?"], "hops": 2, "data_source": "sums"}
    asked = FilesWorld(world(tmp_path, questions=f"{json.dumps(verls)}\n{json.dumps(short)}")).evaluation_questions("dev", 2)
    assert asked == [
        HeldOutQuestion("who wrote emma", ("Jane Austen", "Austen"), None, "nq"),
        HeldOutQuestion("What is 3 + 4?", ("7",), 2, "sums"),
    ]


def test_questions_of_each_benchmark_are_asked_in_turn_and_of_one_split_or_of_both(tmp_path):
    rows = [("a1", "a", None), ("a2", "a", "dev"), ("a3", "a", "test"), ("b1", "b", "dev"), ("b2", "b", None)]
    lines = (json.dumps({"question": q, "golden_answers": ["x"], "data_source": d} | ({"split": s} if s else {})) for q, d, s in rows)
    files = FilesWorld(world(tmp_path, questions="\n".join(lines)))
    assert [q.question for q in files.evaluation_questions("dev", 4)] == ["a1", "b1", "a2", "b2"]
    assert [q.question for q in files.evaluation_questions("dev", 3)] == ["a1", "b1", "a2"], "a shorter list begins a longer one"
    assert [q.question for q in files.evaluation_questions("test", 3)] == ["a1", "b2", "a3"]
    assert sorted(files.held_out(1)) == ["a1", "a2", "a3", "b1", "b2"], "whatever is asked, none may be posed"


def test_more_questions_than_there_are_and_a_split_without_any_are_refused(tmp_path):
    row = '{"question": "Who wrote Emma?", "golden_answers": ["Jane Austen"], "split": "dev"}'
    files = FilesWorld(world(tmp_path, questions=row))
    with pytest.raises(ConfigError, match="has 1 of the dev split; ask for at most that") as refused:
        files.evaluation_questions("dev", 2)
    assert refused.value.key == "evaluation.questions"
    with pytest.raises(ConfigError, match="no row of .*questions.jsonl is of it") as refused:
        files.evaluation_questions("test", 1)
    assert refused.value.key == "evaluation.split"


def test_marks_blank_lines_and_windows_line_ends_are_no_faults(tmp_path):
    def windows(*rows: str) -> bytes:
        return b"\xef\xbb\xbf\r\n" + "\r\n \r\n".join(rows).encode() + b"\r\n\r\n"

    second = '{"id": "2", "contents": "S\u00e3o Tom\u00e9\\r\\nIsland."}'
    files = FilesWorld(world(tmp_path, corpus=windows(PASSAGE, second), targets=windows(TARGET), questions=windows(QUESTION)))
    assert [(d.title, d.text) for d in files.documents] == [("Chad", "Country in Africa."), ("S\u00e3o Tom\u00e9", "Island.")]
    assert (len(files.targets()), len(files.evaluation_questions("test", 1))) == (1, 1)


@pytest.mark.parametrize(
    ("row", "value", "remedy"),
    [
        ('{"id": "2", "contents": "Mali', '{"id": "2", "contents": "Mali', "it is not JSON (Unterminated string starting at, column 25)"),
        ("[1, 2]", "[1, 2]", "no object: write one object per line"),
        ("[" * 100_000, "[" * 80 + "\u2026", "beyond all bounds"),
        ('{"contents": "Mali"}', '{"contents": "Mali"}', "it needs an `id`, a text or a whole number"),
        ('{"id": true, "contents": "Mali"}', '{"id": true, "contents": "Mali"}', "it needs an `id`"),
        ('{"id": "", "contents": "Mali"}', '{"id": "", "contents": "Mali"}', "it needs an `id`"),
        ('{"id": "2"}', '{"id": "2"}', 'its `contents` are missing: write "contents": "Title\\ntext"'),
        ('{"id": "2", "contents": ["Mali"]}', '{"id": "2", "contents": ["Mali"]}', "its `contents` are not text"),
        ('{"id": "2", "contents": null}', '{"id": "2", "contents": null}', "its `contents` are not text"),
        ('{"id": "2", "contents": " \\n"}', '{"id": "2", "contents": " \\n"}', "its `contents` are empty"),
        ('{"id": "2", "contents": "\\ud83d"}', '{"id": "2", "contents": "\\ud83d"}', "half of a surrogate pair"),
        (PASSAGE, "1", "the id stands in line 1 already"),
        ('{"id": 1, "contents": "Mali"}', "1", "the id stands in line 1 already"),
    ],
)
def test_a_wrong_passage_is_refused_with_its_line(row, value, remedy, tmp_path):
    refused = refusal(world(tmp_path, corpus=f"{PASSAGE}\n\n{row}"))
    assert refused.key == f"{tmp_path / CORPUS_FILE}, line 3"
    assert refused.value == value
    assert remedy in refused.allowed


@pytest.mark.parametrize(
    ("row", "value", "remedy"),
    [
        ('{"answer": "Rome", "hops": 1}', '{"answer": "Rome", "hops": 1}', 'write "aliases": [] if there is none'),
        ('{"answer": "Rome", "aliases": "Roma", "hops": 1}', "Roma", "`aliases` is a list of texts"),
        ('{"answer": "Rome", "aliases": ["Roma", "-"], "hops": 1}', "-", "an alias is a text with a letter or a digit"),
        ('{"answer": "Rome", "aliases": [3], "hops": 1}', 3, "an alias is a text with a letter or a digit"),
        ('{"answer": " ", "aliases": [], "hops": 1}', '{"answer": " ", "aliases": [], "hops": 1}', "it needs an `answer`"),
        ('{"aliases": [], "hops": 1}', '{"aliases": [], "hops": 1}', "it needs an `answer`"),
        ('{"answer": "Rome", "aliases": [], "hops": 4}', 4, "1, 2 or 3"),
        ('{"answer": "Rome", "aliases": [], "hops": 0}', 0, "1, 2 or 3"),
        ('{"answer": "Rome", "aliases": [], "hops": true}', True, "1, 2 or 3"),
        ('{"answer": "Rome", "aliases": [], "hops": 1.0}', 1.0, "1, 2 or 3"),
        ('{"answer": "Rome", "aliases": []}', '{"answer": "Rome", "aliases": []}', "1, 2 or 3"),
        ('{"answer": "Rome", "aliases": [], "hops": 1, "relation": 5}', 5, "`relation` is a text"),
        ('{"answer": "the PARIS", "aliases": ["Lutetia"], "hops": 1}', "the PARIS", "line 1 has this answer with the same hops"),
        ("{'answer': 'Rome'}", "{'answer': 'Rome'}", "it is not JSON"),
    ],
)
def test_a_wrong_target_is_refused_with_its_line(row, value, remedy, tmp_path):
    refused = refusal(world(tmp_path, targets=f"{TARGET}\n{row}\n"))
    assert (refused.key, refused.value) == (f"{tmp_path / TARGETS_FILE}, line 2", value)
    assert remedy in refused.allowed


@pytest.mark.parametrize(
    ("row", "remedy"),
    [
        ('{"golden_answers": ["x"]}', "it needs a `question`"),
        ('{"question": "?!", "golden_answers": ["x"]}', "it needs a `question`"),
        ('{"question": "Who?"}', "it needs `golden_answers` (or reward_model.ground_truth.target), a list of texts"),
        ('{"question": "Who?", "golden_answers": "x"}', "it needs `golden_answers`"),
        ('{"question": "Who?", "golden_answers": []}', "nothing could be right: leave the question out"),
        ('{"question": "Which band?", "golden_answers": ["", "!!!"]}', "nothing could be right: leave the question out"),
        ('{"extra_info": {"question": "Who?"}, "reward_model": {"ground_truth": ["x"]}}', "it needs `golden_answers`"),
        ('{"question": "Who?", "golden_answers": ["x"], "split": "train"}', "`split` is dev or test"),
        ('{"question": "Who?", "golden_answers": ["x"], "hops": 0}', "`hops` is a whole number from 1"),
    ],
)
def test_a_wrong_question_is_refused_with_its_line(row, remedy, tmp_path):
    refused = refusal(world(tmp_path, questions=f"{QUESTION}\n{row}"))
    assert refused.key == f"{tmp_path / QUESTIONS_FILE}, line 2"
    assert remedy in refused.allowed


@pytest.mark.parametrize("name", ["corpus", "targets", "questions"])
def test_a_file_without_a_row_is_refused_with_an_example_that_would_do(name, tmp_path):
    refused = refusal(world(tmp_path, **{name: "\n \n"}))
    assert (refused.key, refused.value) == ("world.path", str(tmp_path))
    told, example = refused.allowed.split("; give rows like ")
    assert told == f"{tmp_path / name}.jsonl is empty"
    FilesWorld(world(tmp_path, **{name: example})).check()


@pytest.mark.parametrize("name", ["corpus", "targets", "questions"])
def test_what_is_not_utf_8_is_refused_with_its_line(name, tmp_path):
    refused = refusal(world(tmp_path, **{name: '\n{"title": "S\u00e3o"}'.encode("latin-1")}))
    assert refused.key == f"{tmp_path / name}.jsonl, line 2"
    assert refused.allowed == "byte 13 is not UTF-8: save the file as UTF-8"


def test_the_first_wrong_line_is_told_and_the_others_are_counted(tmp_path):
    lines = [PASSAGE, PASSAGE, "{", '{"id": "3", "contents": "Mali"}', '{"id": "4"}']
    refused = refusal(world(tmp_path, corpus="\n".join(lines)))
    assert refused.key.endswith("line 2")
    assert refused.allowed == "the id stands in line 1 already; give each passage an id of its own (2 more lines are wrong)"
    refused = refusal(world(tmp_path, corpus="\n".join(lines[2:])))
    assert refused.key.endswith("line 1") and refused.allowed.endswith("(1 more line is wrong)")


def test_a_missing_folder_and_missing_files_are_named(tmp_path):
    assert "there is no such folder" in refusal(tmp_path / "nowhere").allowed
    (tmp_path / CORPUS_FILE).write_text(PASSAGE)
    assert refusal(tmp_path).allowed.startswith("it has no targets.jsonl and no questions.jsonl;")
    for name in (TARGETS_FILE, QUESTIONS_FILE):
        (tmp_path / name).mkdir()
    assert refusal(tmp_path).allowed == f"{tmp_path / TARGETS_FILE} cannot be read: Is a directory"


def test_a_fingerprint_tells_which_file_is_another(tmp_path):
    before = FilesWorld(world(tmp_path))
    after = FilesWorld(world(tmp_path, targets='{"answer": "Rome", "aliases": [], "hops": 1}'))
    parts = list(zip(before.fingerprint.split("."), after.fingerprint.split("."), strict=True))
    assert [old.split("-")[0] for old, _ in parts] == ["corpus", "targets", "questions"]
    assert [old == new for old, new in parts] == [True, False, True]
    assert before.index_name == after.index_name, "the same passages share an index"


def test_a_corpus_that_changes_while_it_is_read_is_refused(tmp_path):
    files = FilesWorld(world(tmp_path))
    passages = iter(files.documents)
    next(passages)
    (tmp_path / CORPUS_FILE).write_text(f'{PASSAGE}\n{{"id": "2", "contents": "Mali"}}')
    with pytest.raises(ConfigError, match="was changed while it was read"):
        list(passages)
