"""Questions with their contexts and answers: the JSON files of SQuAD, and rows of tables."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from etils import epath

from bert_jax import jsonl
from bert_jax.data import files
from bert_jax.tasks import TaskDataError, tables

_KINDS = {str: "a text", list: "a list", dict: "an object", bool: "true or false"}


@dataclasses.dataclass(frozen=True)
class Answer:
    """A text, and the character of the context at which it is said to start."""

    text: str
    start: int

    def stands_in(self, context: str) -> bool:
        """Returns whether the context has the text there."""
        return context.startswith(self.text, self.start)


@dataclasses.dataclass(frozen=True)
class Question:
    """A question to a context.

    Attributes:
      id: what it is called in files of predictions.
      text: the question.
      context: what the answer is a part of.
      answers: the right ones; none where the context has none.
      where: its file and place there, for messages.
    """

    id: str
    text: str
    context: str
    answers: tuple[Answer, ...]
    where: str


def read(file: epath.Path) -> list[Question]:
    """Reads a file in the form of SQuAD (Rajpurkar et al. 2016, 2018).

    Args:
      file: JSON, or JSON in .gz: {"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers":
        [{"text", "answer_start"}], "is_impossible"}]}]}]}; the last is not needed.

    Raises:
      ValueError: it is not of this form; the message names the place in it.
    """
    try:
        whole = jsonl.parse(files.whole(file))
    except files.CorpusError:
        raise
    except ValueError as error:
        raise TaskDataError(f"{file}: not JSON ({error}): it must be one object, as SQuAD has it") from error
    if not isinstance(whole, dict):
        raise TaskDataError(f"{file}: it must be one JSON object with 'data', as SQuAD has it")
    found = list(_questions(whole, str(file)))
    if not found:
        raise TaskDataError(f"{file} has no question")
    return checked(found)


def _questions(whole: Mapping[str, Any], file: str) -> Iterator[Question]:
    for a, article in enumerate(_part(whole, "data", list, file)):
        article_at = f"{file}, data[{a}]"
        for p, paragraph in enumerate(_part(article, "paragraphs", list, article_at)):
            at = f"{article_at}.paragraphs[{p}]"
            context = _part(paragraph, "context", str, at)
            if not context.strip():
                raise TaskDataError(f"{at}: the context is empty")
            for q, entry in enumerate(_part(paragraph, "qas", list, at)):
                yield _question(entry, context, f"{at}.qas[{q}]")


def _question(entry: Any, context: str, at: str) -> Question:
    text = _part(entry, "question", str, at)
    if not text.strip():
        raise TaskDataError(f"{at}: the question is empty")
    id = entry.get("id")
    if isinstance(id, bool) or not isinstance(id, str | int) or id == "":
        raise TaskDataError(f"{at}: id {id!r}: it must be a text, by which the prediction is found")
    at = f"{at} (id {id})"
    answers = tuple(
        _answer(_part(each, "text", str, at), each.get("answer_start"), at)
        for each in _part(entry, "answers", list, at)
    )
    impossible = _part(entry, "is_impossible", bool, at) if "is_impossible" in entry else False
    if impossible == bool(answers):
        raise TaskDataError(
            f"{at}: is_impossible is {str(impossible).lower()} and there are {len(answers)} answers: a "
            "question has answers, or is said to be impossible"
        )
    return Question(str(id), text, context, answers, at)


def _part(value: Any, key: str, kind: type, at: str) -> Any:
    """Returns an object's entry, which must be there and of a kind."""
    if not isinstance(value, dict) or key not in value:
        raise TaskDataError(f"{at}: there is no {key!r}: it must be an object that has it, as in SQuAD")
    if not isinstance(value[key], kind):
        raise TaskDataError(f"{at}: {key} {str(value[key])[:40]!r}: it must be {_KINDS[kind]}")
    return value[key]


def _answer(text: Any, start: Any, at: str) -> Answer:
    if not isinstance(text, str) or not text.strip():
        raise TaskDataError(f"{at}: the answer {text!r}: it must be a text that is not empty")
    whole = start
    if isinstance(start, str) and start.strip().isdecimal():
        whole = int(start)  # of CSV and TSV, where all is text
    if isinstance(whole, bool) or not isinstance(whole, int) or whole < 0:
        raise TaskDataError(
            f"{at}: the answer {text[:40]!r} starts at {start!r}: it must be the number of a character "
            "of the context, from 0"
        )
    return Answer(text, whole)


def checked(questions: Sequence[Question]) -> list[Question]:
    """Returns them; raises TaskDataError where two of one file have the same id."""
    id, times = Counter(question.id for question in questions).most_common(1)[0]
    if times > 1:
        last = [question for question in questions if question.id == id][-1]
        raise TaskDataError(f"{last.where}: {times} questions have the id {id!r}: each must have its own")
    return list(questions)


def of_rows(rows: Sequence[tables.Row], columns: tuple[str, str, str], start: str) -> list[Question]:
    """Returns the questions of a table.

    The answer's column holds a text, and the start's where it starts; or both a list, of several answers; or
    the answer's alone {"text": [..], "answer_start": [..]}, as TFDS and Hugging Face have SQuAD. An empty
    text or list, or null, says that the context has no answer. The ids are those of a column "id", else
    the rows' numbers from 0.

    Args:
      rows: of a table.
      columns: of question, context and answer.
      start: of where the answer starts.

    Raises:
      TaskDataError: a row is not of this form, or two have one id.
    """
    made = []
    for number, row in enumerate(rows):
        question, context = (tables.text(row, column) for column in columns[:2])
        id = row.values.get("id")
        id = str(number) if id is None or id == "" else str(id)
        answers = tuple(_answer(*each, row.where) for each in _answers(row, columns[2], start))
        made.append(Question(id, question, context, answers, row.where))
    return checked(made)


def _answers(row: tables.Row, column: str, start: str) -> list[tuple[Any, Any]]:
    """Returns texts and starts of a row's answers, not yet checked."""
    said, starts = row.values[column], row.values.get(start)
    if isinstance(said, dict):
        said, starts = said.get("text"), said.get("answer_start")
    elif said is None or (isinstance(said, str) and not said.strip()):
        return []
    elif start not in row.values:
        raise TaskDataError(
            f"{row.where}: there is no column {start!r}: name by task.answer_start the one that tells at "
            "which character of the context the answer starts"
        )
    if isinstance(said, str):
        said, starts = [said], [starts]
    if not isinstance(said, list) or not isinstance(starts, list) or len(said) != len(starts):
        raise TaskDataError(
            f"{row.where}: {column} and {start} must be a text and a number, or as many of both in lists"
        )
    return list(zip(said, starts, strict=True))
