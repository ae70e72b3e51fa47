"""SuperGLUE's files: JSON lines whose nested parts are laid flat, as TFDS has them: an example a row.

Nested are MultiRC's passages with their questions and these with their answers, ReCoRD's passages with their
queries, and the target of a Winograd schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from etils import epath

from bert_jax.tasks import TaskDataError, tables
from bert_jax.tasks.superglue_benchmarks import Benchmark

_KINDS = {str: "a text", int: "a whole number", list: "a list", dict: "an object"}


def coded(name: str, benchmark: Benchmark, file: epath.Path) -> Iterator[tables.Row]:
    """Yields the examples of a file, laid flat, each class by its number; `label` only where there is one.

    Raises:
      ValueError: a line is not JSON, or lacks a field, or says what it may not.
    """
    for place, row in enumerate(tables.rows(file, benchmark.inside or benchmark.fields)):
        for each in flat(name, row, place):
            yield _coded(benchmark, each)


def flat(name: str, row: tables.Row, place: int = 0) -> Iterator[tables.Row]:
    """Yields the examples that a line of a task's file has, laid flat as TFDS has them.

    Args:
      name: of the task.
      row: the line.
      place: its number, which is its idx where it has none.
    """
    values = {**row.values, "idx": _idx(row.where, row.values, place)}
    if name == "multirc":
        yield from _answers(row.where, values)
    elif name == "record":
        yield from _queries(row.where, values)
    elif name == "wsc":
        target = field(row.where, values, "target", dict)
        keys = [key for key in target if key.startswith("span")]
        yield tables.Row(row.where, {**values, **{key: target[key] for key in keys}})
    else:
        yield tables.Row(row.where, values)


def _answers(where: str, values: Mapping[str, Any]) -> Iterator[tables.Row]:
    passage = field(where, values, "passage", dict)
    text = field(where, passage, "text", str)
    for n, question in enumerate(field(where, passage, "questions", list)):
        here = f"{where}, question {n + 1}"
        asked = field(here, question, "question", str)
        for m, answer in enumerate(field(here, question, "answers", list)):
            there = f"{here}, answer {m + 1}"
            told = {"paragraph": text, "question": asked, "answer": field(there, answer, "text", str)}
            told["idx"] = {
                "paragraph": values["idx"],
                "question": _idx(here, question, n),
                "answer": _idx(there, answer, m),
            }
            yield tables.Row(there, told | ({"label": answer["label"]} if "label" in answer else {}))


def _queries(where: str, values: Mapping[str, Any]) -> Iterator[tables.Row]:
    passage = field(where, values, "passage", dict)
    text = field(where, passage, "text", str)
    entities: dict[str, None] = {}  # each once, in the order of their first mentions
    for n, entity in enumerate(field(where, passage, "entities", list)):
        here = f"{where}, entity {n + 1}"
        start, end = (field(here, entity, key, int) for key in ("start", "end"))
        if not 0 <= start <= end < len(text):  # the end is the last character
            raise TaskDataError(f"{here}: [{start}, {end}] is not in the passage, which has {len(text)}")
        entities[text[start : end + 1]] = None
    for n, query in enumerate(field(where, values, "qas", list)):
        here = f"{where}, query {n + 1}"
        told: dict[str, Any] = {"passage": text, "query": field(here, query, "query", str)}
        told["entities"] = list(entities)
        answers = field(here, query, "answers", list) if "answers" in query else []
        told["answers"] = [field(here, answer, "text", str) for answer in answers]
        yield tables.Row(here, told | {"idx": {"passage": values["idx"], "query": _idx(here, query, n)}})


def field(where: str, values: Any, key: str, kind: type) -> Any:
    """Returns a field of a JSON object; raises TaskDataError where it is missing or of another kind."""
    if not isinstance(values, dict) or key not in values:
        raise TaskDataError(f"{where}: there is no {key!r} in {str(values)[:60]}")
    if not isinstance(values[key], kind) or (kind is int and isinstance(values[key], bool)):
        raise TaskDataError(f"{where}: {key} {str(values[key])[:60]}: it must be {_KINDS[kind]}")
    return values[key]


def _idx(where: str, values: Mapping[str, Any], place: int) -> int:
    """Returns what the benchmark calls an object, or its place where it is not called anything."""
    return field(where, values, "idx", int) if "idx" in values else place


def _coded(benchmark: Benchmark, row: tables.Row) -> tables.Row:
    """Returns a row with the number of its class; a label that says nothing is left out."""
    said = row.values.get("label")
    rest = {key: value for key, value in row.values.items() if key != "label"}
    if said is None:
        return tables.Row(row.where, rest)
    for number, (code, name) in enumerate(zip(benchmark.codes, benchmark.names, strict=True)):
        if said == code or (isinstance(said, str) and said.lower() == name):
            return tables.Row(row.where, {**rest, "label": number})
    allowed = " or ".join(str(code).lower() for code in benchmark.codes)
    raise TaskDataError(f"{row.where}: label {said!r}: it must be {allowed}")
