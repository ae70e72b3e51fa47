"""Answers as JSON lines: whole or not at all, compressed by their name."""

import gzip
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from bert_jax import jsonl, workdir

VALUES = [{"text": "é\ud800"}, {"text": ""}]


@pytest.mark.parametrize(("name", "opened"), [("out.jsonl", open), ("out.jsonl.gz", gzip.open)])
def test_a_file_holds_every_value(name: str, opened: Any, tmp_path: pathlib.Path) -> None:
    jsonl.write(iter(VALUES), str(tmp_path / name))
    with opened(tmp_path / name, "rt", encoding="utf-8") as file:
        assert [json.loads(line) for line in file] == VALUES
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_error_leaves_an_earlier_file_and_nothing_else(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "out.jsonl"
    file.write_text("earlier")

    def values() -> Iterator[dict[str, Any]]:
        yield VALUES[0]
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        jsonl.write(values(), str(file))
    assert file.read_text() == "earlier"
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


def test_stdout_gets_lines(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    jsonl.write(VALUES, "-")
    assert [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()] == VALUES


def test_a_text_of_json_keeps_lone_surrogates(tmp_path: pathlib.Path) -> None:
    for number, text in enumerate(json.dumps(value, ensure_ascii=False) for value in VALUES):
        workdir.write(tmp_path / str(number), text)
        assert json.loads((tmp_path / str(number)).read_text(encoding="utf-8")) == VALUES[number]


def test_what_cannot_be_written_leaves_nothing(tmp_path: pathlib.Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        workdir.write(tmp_path / "taken", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
