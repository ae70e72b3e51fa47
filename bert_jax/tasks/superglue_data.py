"""SuperGLUE's data, from the files that it distributes or from TFDS: what a model reads of each example."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from absl import logging
from etils import epath
from ml_collections import ConfigDict

from bert_jax.tasks import TaskDataError, spanned, superglue_files, tables, winograd
from bert_jax.tasks.spanned import Span
from bert_jax.tasks.superglue_benchmarks import BENCHMARKS, DIAGNOSTICS, Benchmark

PLACEHOLDER = "@placeholder"
# COPA's two questions, as its authors ask them (Roemmele et al. 2011).
_QUESTIONS = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
_BULLET = re.compile(r"\n@highlight\n")  # before each of the points that sum a passage of ReCoRD up


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """An example.

    Attributes:
      texts: what the model reads: a text, a pair, or a text and two choices.
      label: number of its class; None where it is not known.
      idx: what the benchmark calls it; of MultiRC (passage, question, answer).
      group: what it is judged with: a question of MultiRC, a query of ReCoRD, a pair of AX-g, which differ
        in gender alone; None where it stands alone.
      spans: two that are pointed out, in characters, or None.
      answer: the entity that ReCoRD's query was filled with.
      golds: ReCoRD's right answers.
    """

    texts: tuple[str, ...]
    label: int | None
    idx: Any
    group: Any = None
    spans: tuple[Span, Span] | None = None
    answer: str = ""
    golds: tuple[str, ...] = ()


def of_folder(name: str, benchmark: Benchmark, folder: epath.Path, config: ConfigDict) -> dict[str, Any]:
    """Returns `train`, `evals` and `tests`: lists of examples, the latter two by name.

    Raises:
      ValueError: a file is missing or cannot be read.
    """
    train = folder / (config.task.train_file or "train.jsonl")
    held_out = folder / (config.task.eval_file or "val.jsonl")
    for file, key in ((train, "train_file"), (held_out, "eval_file")):
        if not file.is_file():
            raise TaskDataError(
                f"{file} is not there: data.path needs train.jsonl and val.jsonl of SuperGLUE's "
                f"{benchmark.folder}, or others named by task.{key}"
            )

    def read(key: str, which: Benchmark, file: epath.Path, labelled: bool = True) -> list[Item]:
        return items(key, which, superglue_files.coded(key, which, file), str(file), labelled)

    data: dict[str, Any] = {"train": read(name, benchmark, train), "tests": {}}
    data["evals"] = {"eval": read(name, benchmark, held_out)}
    test = folder / "test.jsonl"
    if test.is_file():
        data["tests"]["test"] = read(name, benchmark, test, labelled=False)
    for key, other in DIAGNOSTICS.items() if name == "superglue_rte" else ():
        file = f"{other.folder}.jsonl"
        places = (folder / file, folder.parent / other.folder / file)
        found = next((place for place in places if place.is_file()), None)
        if found is not None:
            some = read(key, other, found, labelled=False)
            known = all(item.label is not None for item in some)
            data["evals" if known else "tests"][key] = some
    return data


def of_tfds(name: str, benchmark: Benchmark, config: ConfigDict) -> dict[str, Any]:
    """Returns the same of a TFDS dataset; labels of -1, as tests have them, are none.

    Raises:
      ValueError: TFDS cannot give it, or it is another dataset.
    """
    data = tables.Tfds(config.data.path, config.data.tfds_dir)

    def split(which: str, labelled: bool = True) -> list[Item]:
        rows = _of_tfds(name, benchmark, data, which, labelled)
        return items(name, benchmark, rows, f"{data.name}, {which}", labelled)

    tests = {"test": split("test", False)} if "test" in data.splits else {}
    return {"train": split("train"), "evals": {"eval": split("validation")}, "tests": tests}


def _of_tfds(
    name: str, benchmark: Benchmark, data: tables.Tfds, split: str, labelled: bool
) -> Iterator[tables.Row]:
    columns = benchmark.fields if name == "record" else (*benchmark.fields, "label")
    said = data.classes("label") if "label" in data.features else None
    if said is not None and tuple(x.lower() for x in said) != benchmark.names:
        raise TaskDataError(
            f"data.path = {data.name!r}: its classes are {', '.join(said)}: those of SuperGLUE's "
            f"{benchmark.folder} are {', '.join(benchmark.names)}"
        )
    for row in data.rows(split, columns):
        known = 0 <= row.values.get("label", -1) < len(benchmark.names)
        if labelled and not known and name != "record":
            raise TaskDataError(f"{row.where}: label {row.values['label']}: this split has no labels")
        yield tables.Row(row.where, {k: v for k, v in row.values.items() if k != "label" or known})


def items(
    name: str, benchmark: Benchmark, rows: Iterable[tables.Row], origin: str, labelled: bool = True
) -> list[Item]:
    """Returns the examples of flat rows.

    Args:
      name, benchmark: the task.
      rows: of `superglue_files.coded`, or of TFDS.
      origin: what they are, for messages.
      labelled: whether each must have a label; of a test texts may be empty, too.

    Raises:
      TaskDataError: a label or text is missing, a span is not in its text, or there is no row.
    """
    found: list[Item] = []
    elsewhere = 0
    for row in rows:
        if labelled and name != "record" and "label" not in row.values:
            raise TaskDataError(f"{row.where}: there is no label")
        some, count = _read(name, benchmark, row, labelled)
        found += some
        elsewhere += count
    if elsewhere:
        logging.warning(
            "%s: %d of %d spans are not where their index says: the nearest place of their words is read",
            origin, elsewhere, 2 * len(found),
        )  # fmt: skip
    if not found:
        raise TaskDataError(f"{origin} has no example")
    return found


def inputs(name: str, file: epath.Path) -> Iterator[tuple[str, ...]]:
    """Yields what a model of a task reads of each example of one of its files, whatever labels there are.

    Spans are marked in the texts (`spanned.inline`).

    Raises:
      ValueError: as in `superglue_files.flat` and `items`.
    """
    benchmark = BENCHMARKS.get(name)
    if benchmark is None:
        raise TaskDataError(f"{name!r} is no task of SuperGLUE: they are {', '.join(BENCHMARKS)}")
    for place, row in enumerate(tables.rows(file, benchmark.inside or benchmark.fields)):
        for each in superglue_files.flat(name, row, place):
            unlabelled = {key: value for key, value in each.values.items() if key != "label"}
            for item in _read(name, benchmark, tables.Row(each.where, unlabelled), labelled=False)[0]:
                yield item.texts if item.spans is None else spanned.inline(item.texts, item.spans)


def _read(name: str, benchmark: Benchmark, row: tables.Row, labelled: bool) -> tuple[list[Item], int]:
    """Returns the examples of a row, and how many of their spans are not where their index says."""
    if name == "record":
        return list(_filled(row, labelled)), 0
    if name == "wsc":
        item, elsewhere = _winograd(row)
        return [item], elsewhere
    return [_item(name, benchmark, row, empty=not labelled)], 0


def _item(name: str, benchmark: Benchmark, row: tables.Row, empty: bool) -> Item:
    values, label = row.values, row.values.get("label")
    texts = {
        key: tables.text(row, key, empty or key == "answer")
        for key in benchmark.fields
        if not key.startswith(("start", "end"))
    }
    if name == "copa":
        asked = texts["question"]
        if asked not in _QUESTIONS:
            raise TaskDataError(f"{row.where}: question {asked!r}: it must be cause or effect")
        context = f"{texts['premise']} {_QUESTIONS[asked]}"
        return Item((context, texts["choice1"], texts["choice2"]), label, values["idx"])
    if name == "multirc":
        idx = tuple(values["idx"][key] for key in ("paragraph", "question", "answer"))
        both = f"{texts['question']} {texts['answer']}"
        return Item((texts["paragraph"], both), label, idx, group=idx[:2])
    if name == "wic":
        spans = tuple(_characters(row, texts[f"sentence{n}"], f"start{n}", f"end{n}") for n in (1, 2))
        return Item(tuple(texts.values()), label, values["idx"], spans=spans)
    return Item(tuple(texts.values()), label, values["idx"], group=values.get("pair_id"))


def _characters(row: tables.Row, text: str, first: str, last: str) -> Span:
    start, end = (superglue_files.field(row.where, row.values, key, int) for key in (first, last))
    if not 0 <= start < end <= len(text) or not text[start:end].strip():
        raise TaskDataError(
            f"{row.where}: [{start}, {end}] of {first} and {last} is no span of a sentence of {len(text)} "
            "characters"
        )
    return start, end


def _winograd(row: tables.Row) -> tuple[Item, int]:
    """Returns an example of WSC, and how many of its spans do not stand where they are said to."""
    text = tables.text(row, "text")
    found = []
    for n in (1, 2):
        phrase = superglue_files.field(row.where, row.values, f"span{n}_text", str)
        index = superglue_files.field(row.where, row.values, f"span{n}_index", int)
        found.append(winograd.locate(text, phrase, index, row.where))
    spans = (found[0][0], found[1][0])
    item = Item((text,), row.values.get("label"), row.values["idx"], spans=spans)
    return item, sum(not there for _, there in found)


def _filled(row: tables.Row, labelled: bool) -> Iterator[Item]:
    """Yields a query of ReCoRD filled with each entity: true where this is a right answer."""
    query, golds = tables.text(row, "query"), tuple(row.values["answers"])
    entities = [entity for entity in row.values["entities"] if entity.strip()]
    if PLACEHOLDER not in query:
        raise TaskDataError(f"{row.where}: there is no {PLACEHOLDER} in the query {query[:60]!r}")
    if not entities:
        raise TaskDataError(f"{row.where}: the passage has no entity to answer with")
    if labelled and not golds:
        raise TaskDataError(f"{row.where}: there is no answer")
    passage = _BULLET.sub(" ", tables.text(row, "passage"))
    group = tuple(row.values["idx"][key] for key in ("passage", "query"))
    for entity in entities:
        label = int(entity in golds) if golds else None
        yield Item(
            (passage, query.replace(PLACEHOLDER, entity)), label, group[1], group, answer=entity, golds=golds
        )


def group_numbers(found: Sequence[Item]) -> list[int]:
    """Returns the number of each example's group, in the order in which they come."""
    numbers: dict[Any, int] = {}
    return [numbers.setdefault(item.group, len(numbers)) for item in found]
