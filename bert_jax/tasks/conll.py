"""Sentences with a tag for each word: files of columns as CoNLL's shared tasks have them, and JSON lines."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from absl import logging
from etils import epath
from ml_collections import ConfigDict

from bert_jax.data import files
from bert_jax.tasks import TaskDataError, schemes, tables

# By these parts of their names the files of a folder are known.
_TRAIN, _EVAL = ("train",), ("dev", "valid", "testa", "eval")
_DOCUMENT = "-DOCSTART-"  # the word of a line that begins a document


@dataclasses.dataclass(frozen=True)
class Sentence:
    """Words with their tags.

    Attributes:
      words, tags: as many of each, as the file has them.
      file, lines: where each word is from, for messages.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    file: str
    lines: tuple[int, ...]

    def where(self, place: int) -> str:
        return f"{self.file}, line {self.lines[place]}"


def find(config: ConfigDict, suffixes: tuple[str, ...] = ("",)) -> tuple[epath.Path, epath.Path | None]:
    """Returns the files of training and evaluation, the latter if there is one.

    Args:
      config: the whole config.
      suffixes: of a folder's files those whose names end so are looked at.
    """
    path = epath.Path(config.data.path).expanduser()
    named = config.data.eval_path and epath.Path(config.data.eval_path).expanduser()
    if path.is_dir():
        train = _file(path, _TRAIN, (), config.task.train_file, "task.train_file", suffixes)
        if train is None:
            raise TaskDataError(
                f"{path} has no file with {_TRAIN[0]!r} in its name: name the training file by "
                "task.train_file"
            )
        held_out = named or _file(path, _EVAL, _TRAIN, config.task.eval_file, "task.eval_file", suffixes)
    else:
        train, held_out = path, named or None
        tables.refuse_files(config)
    for key, file in (("data.path", train), ("data.eval_path", held_out)):
        if file is not None and not file.is_file():
            raise TaskDataError(f"{key} = {str(file)!r}: there is no such file")
    return train, held_out


def _file(
    folder: epath.Path, parts: Sequence[str], others: Sequence[str], named: str, key: str,
    suffixes: tuple[str, ...],
) -> epath.Path | None:  # fmt: skip
    """Returns the file that is named, or the one whose name has one of the parts and none of the others."""
    if named:
        return folder / named
    there = sorted((f for f in folder.iterdir() if f.is_file() and not f.name.startswith(".")), key=str)
    found = [
        file
        for file in there
        if file.name.lower().endswith(suffixes)
        and any(part in file.name.lower() for part in parts)
        and not any(part in file.name.lower() for part in others)
    ]
    if len(found) > 1:
        raise TaskDataError(f"{folder} has {found[0].name} and {found[1].name}: name one of them by {key}")
    return found[0] if found else None


def read(file: epath.Path, columns: tuple[int, int], fields: tuple[str, str]) -> list[Sentence]:
    """Reads the sentences of a file.

    Args:
      file: `.jsonl` or `.jsonl.gz` (`fields` are lists of texts in each line), or of columns (`_of_columns`).
      columns: of words and of tags; negative ones count from the end.
      fields: the same of JSON lines.

    Raises:
      ValueError: the file is not UTF-8 or not of this form, or has no sentence.
    """
    if file.name.lower().removesuffix(".gz").endswith(".jsonl"):
        found = list(_of_jsonl(file, fields))
    else:
        found = list(_of_columns(file, columns))
    if not found:
        raise TaskDataError(f"{file} has no sentence")
    return found


def _of_columns(file: epath.Path, columns: tuple[int, int]) -> Iterator[Sentence]:
    """Yields the sentences of a file with a word a line.

    Columns are separated by tabs, or where a line has none by spaces; all lines have as many. A line
    without anything ends a sentence, as one of -DOCSTART- does. A line that begins with "#" and has
    another number of columns is a comment; else its word is "#" or begins with it.
    """
    width, first = _width(file)
    for name, column in zip(("task.token_column", "task.tag_column"), columns, strict=True):
        if not -width <= column < width:
            raise TaskDataError(f"{file}, line {first}: {name} = {column}, and there are {width} columns")
    words, tags, numbers = [], [], []
    for number, line in files.lines(file):
        row = _row(line)
        is_comment = line.startswith("#") and len(row) != width
        if row and not is_comment and not row[0].startswith(_DOCUMENT):
            if len(row) != width:
                raise TaskDataError(
                    f"{file}, line {number}: {len(row)} columns, and line {first} has {width}: all must have "
                    "as many, separated by tabs or by spaces"
                )
            word, tag = (row[column].strip() for column in columns)
            if not word or not tag:
                raise TaskDataError(f"{file}, line {number}: its {'tag' if word else 'word'} is empty")
            words.append(word)
            tags.append(tag)
            numbers.append(number)
        elif words and not is_comment:
            yield Sentence(tuple(words), tuple(tags), str(file), tuple(numbers))
            words, tags, numbers = [], [], []
    if words:
        yield Sentence(tuple(words), tuple(tags), str(file), tuple(numbers))


def _width(file: epath.Path) -> tuple[int, int]:
    """Returns how many columns the first line has that is surely a word's, and its number."""
    begins = None
    for number, line in files.lines(file):
        row = _row(line)
        if row and not row[0].startswith(_DOCUMENT):
            begins = begins or (len(row), number)
            if not line.startswith("#"):
                begins = len(row), number
                break
    if begins is None:
        raise TaskDataError(f"{file} has no sentence")
    if begins[0] < 2:
        raise TaskDataError(
            f"{file}, line {begins[1]}: one column: there must be a word and its tag, separated by a tab or "
            "by spaces"
        )
    return begins


def _row(line: str) -> list[str]:
    """Returns the columns of a line; none of an empty one."""
    line = line.removesuffix("\r")
    if not line.strip():
        return []
    # Only tabs and spaces: other white space may be in a word.
    return line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))


def _of_jsonl(file: epath.Path, fields: tuple[str, str]) -> Iterator[Sentence]:
    for row in tables.rows(file, fields):
        words, tags = (row.values[field] for field in fields)
        for field, values in zip(fields, (words, tags), strict=True):
            if not isinstance(values, list) or not all(isinstance(x, str) and x.strip() for x in values):
                raise TaskDataError(f"{row.where}: {field} must be a list of texts, none of them empty")
        if len(words) != len(tags):
            raise TaskDataError(f"{row.where}: {len(words)} {fields[0]} and {len(tags)} {fields[1]}")
        number = int(row.where.rpartition(" ")[2])
        if words:
            yield Sentence(tuple(words), tuple(tags), str(file), (number,) * len(words))


def find_scheme(sentences: Sequence[Sentence]) -> str:
    """Returns the scheme that all tags of the training data keep, and says it.

    Raises:
      TaskDataError: a tag is none, or they keep none; the message names the first breach of each.
    """
    broken = {}
    for scheme in (schemes.IOB2, schemes.IOB1, schemes.IOBES):
        breach = _breach(sentences, scheme)
        if breach is None:
            logging.info("%s: the tags are in the scheme %s", sentences[0].file, scheme.upper())
            return scheme
        broken[scheme] = breach
    raise TaskDataError(
        "the tags keep no scheme: "
        + "; ".join(f"{scheme.upper()} is broken by {breach}" for scheme, breach in broken.items())
        + '; mend the file, or tags without a scheme are task.name = "tagging"'
    )


def check(sentences: Sequence[Sentence], scheme: str) -> None:
    """Raises TaskDataError, naming file and line, where a tag is none or stands where it must not."""
    breach = _breach(sentences, scheme)
    if breach is not None:
        raise TaskDataError(f'{breach}: mend it, or name another scheme than task.scheme = "{scheme}"')


def _breach(sentences: Sequence[Sentence], scheme: str) -> str | None:
    """Returns where a scheme is broken first, and how."""
    for sentence in sentences:
        wrong = next((n for n, tag in enumerate(sentence.tags) if not schemes.is_tag(tag)), None)
        if wrong is not None:
            raise TaskDataError(
                f"{sentence.where(wrong)}: {sentence.tags[wrong]!r} is no tag of entities, which are O, or "
                "B-, I-, E- or S- with a type: name their column by task.tag_column"
            )
        problem = next(schemes.problems(sentence.tags, scheme), None)
        if problem is not None:
            return f"{sentence.where(problem[0])}: {problem[1]}"
    return None


def as_iob2(sentences: Sequence[Sentence]) -> list[Sentence]:
    """Returns the same sentences with their tags in IOB2, whatever scheme they are in."""
    return [
        dataclasses.replace(s, tags=tuple(schemes.tags_of(schemes.entities(s.tags), len(s.tags))))
        for s in sentences
    ]
