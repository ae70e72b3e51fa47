"""Where text comes from: files, JSON lines, TFDS or Python's own documentation, as streams of paragraphs.

`data.source` says which:

- "text": `data.path` is a file, a directory (all its .txt, .text, .md and .markdown files, also
  with .gz, at any depth, in order of their paths) or a glob. A blank line ends a paragraph; the
  lines inside one are joined by spaces. A file is one document, unless `data.document_marker` is
  set: then each line in which that regular expression is found starts a new document, and stays
  part of its text. Markdown (.md, .markdown) loses the marks of headings, each of which is a
  paragraph of its own, rules (`---`) and the marks of emphasis; everything else stays as it is.
- "jsonl": a JSON object a line, each one document, its text under `data.text_key`; files as above
  (.jsonl, .ndjson, .json). Blank lines in the text end paragraphs. Empty lines are passed over.
- "tfds": `data.path` names a TFDS dataset, `data.tfds_split` a split of it; each example is a
  document, its text the feature `data.text_key`, in the order in which the dataset is stored.
- "embedded": the running Python's own documentation; `data.path` is not used.

`data.eval_path` is read by the same source; with "tfds" it names another split of the dataset
("validation"), with "embedded" it is read as "text". Text is UTF-8, anything else is an error.
Documents without text do not count. Text without blank lines has paragraphs too: one of more than
4,096 characters ends with the next line that ends a sentence, and none is longer than 65,536
characters, so that no text fills the memory.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Iterator
from typing import Any

from etils import epath
from ml_collections import ConfigDict

from bert_jax import jsonl
from bert_jax.data import files
from bert_jax.data.embedded import embedded_file
from bert_jax.data.files import CorpusError

LONG = 1 << 12  # characters after which a line that ends a sentence ends its paragraph
LONGEST = 1 << 16  # most characters of a paragraph

_MARKDOWN = (".md", ".markdown")
TEXT = (".txt", ".text", *_MARKDOWN)
_JSONL = (".jsonl", ".ndjson", ".json")
_CHUNK = 1 << 18  # bytes hashed at a time

_HEADING = re.compile(r"#{1,6}(?:\s+|$)")
_RULE = re.compile(r"([-*_=])(?:\s*\1){2,}$")
_SENTENCE_END = re.compile(r"[.!?\u2026\u3002\uff01\uff1f][\"')\]\u201d\u2019\u00bb\u300d\u300f\uff09]*$")
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3}|_{1,3})(?=\S)([^*_]{1,500}?)(?<=\S)\1(?![\w*])")


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """A paragraph: its text, stripped and never empty, and whether it is the first of a document."""

    text: str
    new_document: bool


def paragraphs(config: ConfigDict) -> Iterator[Paragraph]:
    """Yields the text of `data.source` and `data.path`, training and held-out text alike, in order.

    Raises:
      CorpusError: a path that names nothing, a file that is not UTF-8, a line that is not JSON or
        lacks the key, an unknown dataset, split or feature, or no text at all.
    """
    data = config.data
    if data.source == "embedded":
        texts = _jsonl(str(embedded_file(data.cache_dir)), "text", "data.path")
    else:
        texts = _read(config, data.source, data.path, "data.path")
    yield from _not_empty(texts, f"data.source = {data.source!r}, data.path = {data.path!r}")


def eval_paragraphs(config: ConfigDict) -> Iterator[Paragraph]:
    """Yields the text of `data.eval_path`; as `paragraphs`."""
    data = config.data
    source = "text" if data.source == "embedded" else data.source
    texts = _read(config, source, data.eval_path, "data.eval_path")
    yield from _not_empty(texts, f"data.eval_path = {data.eval_path!r}")


def files_of(config: ConfigDict) -> list[tuple[str, epath.Path, str]]:
    """Returns the files of the text in their order: the key that names each, the file, and the key's value.

    Raises:
      CorpusError: a path that names nothing, or a source that has no files.
    """
    data = config.data
    if data.source == "tfds":
        raise CorpusError('data.source = "tfds" is a dataset and no files')
    found = []
    for key, path in (("data.path", data.path), ("data.eval_path", data.eval_path)):
        if key == "data.path" and data.source == "embedded":
            found.append((key, epath.Path(embedded_file(data.cache_dir)), ""))
        elif path:
            suffixes = _JSONL if data.source == "jsonl" else TEXT
            found += [(key, file, path) for file in files.find(path, suffixes, key)]
    return found


def paragraphs_of(config: ConfigDict, key: str, file: str) -> Iterator[Paragraph]:
    """Yields the text of one of `files_of`, which may have none."""
    if config.data.source == "embedded" and key == "data.path":
        return _jsonl(file, "text", key)
    return _read(config, "text" if config.data.source == "embedded" else config.data.source, file, key)


def fingerprint(
    config: ConfigDict, look: Callable[[epath.Path], tuple[str, int]] | None = None
) -> tuple[str, int]:
    """Returns what the text depends on, as a digest, and its size in bytes (0 where unknown).

    Two sources of the same digest give the same paragraphs. Files count by name below the path
    and by content, which is read once for it; a dataset by its name, version and split sizes.

    Args:
      config: the whole config.
      look: gives a file's digest and bytes, where they are known already (`digest_of`).
    """
    data = config.data
    digest = hashlib.sha256(repr((data.source, data.text_key, data.document_marker)).encode())
    if data.source == "tfds":
        info = _builder(config).info
        for split in filter(None, (data.tfds_split, data.eval_path)):
            examples = _split_info(config, info, split).num_examples
            digest.update(repr((info.full_name, split, examples)).encode())
        return digest.hexdigest(), 0
    size, packed = 0, False
    for key, file, root in files_of(config):
        content, length = (look or digest_of)(file)
        digest.update(repr((key, str(file).removeprefix(root), content)).encode())
        size += length
        packed |= file.name.lower().endswith(".gz")
    return digest.hexdigest(), 0 if packed else size


def digest_of(file: epath.Path) -> tuple[str, int]:
    """Returns the SHA-256 of a file's content, in hexadecimal digits, and its bytes."""
    digest, size = hashlib.sha256(), 0
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
    return digest.hexdigest(), size


def _not_empty(texts: Iterator[Paragraph], what: str) -> Iterator[Paragraph]:
    first = next(texts, None)
    if first is None:
        raise CorpusError(f"{what}: there is no text in it")
    yield first
    yield from texts


def _read(config: ConfigDict, source: str, path: str, key: str) -> Iterator[Paragraph]:
    data = config.data
    if source == "text":
        return _text(path, data.document_marker, key)
    if source == "jsonl":
        return _jsonl(path, data.text_key, key)
    if source == "tfds":
        return _tfds(config, path if key == "data.eval_path" else data.tfds_split)
    raise CorpusError(f"data.source = {source!r} is not a source of text")


def _text(path: str, marker: str, key: str) -> Iterator[Paragraph]:
    try:
        starts = re.compile(marker).search if marker else None
    except re.error as error:
        raise CorpusError(f"data.document_marker = {marker!r} is no regular expression: {error}") from error
    for file in files.find(path, TEXT, key):
        name = file.name.lower().removesuffix(".gz")
        lines: Iterator[str] = (line for _, line in files.lines(file, longest=LONGEST))
        new = True
        for text, marked in _join(lines, starts, name.endswith(_MARKDOWN)):
            yield Paragraph(text, new or marked)
            new = False


def _join(lines: Iterator[str], starts: Any, markdown: bool) -> Iterator[tuple[str, bool]]:
    """Yields (paragraph, whether it starts with a document marker) of lines of text."""
    parts: list[str] = []
    size = 0
    marked = False

    def flush() -> Iterator[tuple[str, bool]]:
        nonlocal parts, size, marked
        text = " ".join(parts)
        if markdown and ("*" in text or "_" in text):
            text = _EMPHASIS.sub(r"\2", text)
        while len(text) > LONGEST:
            cut = text.rfind(" ", 1, LONGEST)
            cut = LONGEST if cut < 0 else cut
            yield text[:cut].rstrip(), marked
            text, marked = text[cut:].lstrip(), False
        if text:
            yield text, marked
            marked = False  # a marker that is stripped to nothing still starts its document
        parts, size = [], 0

    for line in lines:
        starting = starts is not None and starts(line) is not None
        line = line.strip()
        alone = False
        if markdown and line:
            heading = _HEADING.match(line)
            if heading:
                line, alone = line[heading.end() :].rstrip("#").rstrip(), True
            elif line[0] in "-*_=" and _RULE.match(line):
                line = ""
        if not line or starting or alone or size >= LONGEST:
            yield from flush()
        marked = marked or starting
        if line:
            parts.append(line)
            size += len(line) + 1
            if alone or (size > LONG and _SENTENCE_END.search(line, max(0, len(line) - 8))):
                yield from flush()
    yield from flush()


def _jsonl(path: str, text_key: str, key: str) -> Iterator[Paragraph]:
    for file in files.find(path, _JSONL, key):
        for number, line in files.lines(file):
            if not line.strip():
                continue
            where = f"{file}, line {number}"
            try:
                record = jsonl.parse(line)
            except ValueError as error:
                raise CorpusError(f"{where}: not JSON ({error})") from error
            if not isinstance(record, dict) or not isinstance(record.get(text_key), str):
                found = (
                    f"its keys are {', '.join(record) or 'none'}" if isinstance(record, dict) else "no object"
                )
                raise CorpusError(f"{where}: no text under {text_key!r} ({found}); set data.text_key")
            yield from _document(record[text_key], where)


def _document(text: str, where: str) -> Iterator[Paragraph]:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:  # JSON can spell half of a surrogate pair
            raise CorpusError(f"{where}: a character that is no Unicode ({error})") from error
    new = True
    for piece, _ in _join(iter(text.split("\n")), None, False):
        yield Paragraph(piece, new)
        new = False


def _builder(config: ConfigDict) -> Any:
    import tensorflow_datasets as tfds  # takes seconds, and other sources do without

    name, folder = config.data.path, config.data.tfds_dir
    try:
        builder = tfds.builder(name, data_dir=folder or None)
        builder.download_and_prepare()  # nothing to do where the dataset is there
    except Exception as error:  # TFDS and its downloads raise errors of every kind
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CorpusError(f"data.path = {name!r}: TFDS cannot give this dataset: {reason}") from error
    return builder


def _split_info(config: ConfigDict, info: Any, split: str) -> Any:
    try:
        return info.splits[split]
    except (KeyError, ValueError) as error:
        known = ", ".join(sorted(info.splits))
        raise CorpusError(f"TFDS split {split!r}: {config.data.path} has the splits {known}") from error


def _tfds(config: ConfigDict, split: str) -> Iterator[Paragraph]:
    import tensorflow_datasets as tfds

    builder, key = _builder(config), config.data.text_key
    _split_info(config, builder.info, split)
    if key not in builder.info.features:
        known = ", ".join(sorted(builder.info.features))
        raise CorpusError(f"data.text_key = {key!r}: the features of {config.data.path} are {known}")
    # One file after the other, none ahead: the order is then that of the files.
    reading = tfds.ReadConfig(interleave_cycle_length=1, interleave_block_length=None, try_autocache=False)
    dataset = builder.as_dataset(split=split, shuffle_files=False, read_config=reading)
    for number, example in enumerate(tfds.as_numpy(dataset)):
        value, where = example[key], f"{config.data.path}, {split}, example {number}"
        if not isinstance(value, bytes):
            raise CorpusError(
                f"{where}: feature {key!r} is {type(value).__name__} and no text; set data.text_key"
            )
        try:
            text = value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CorpusError(f"{where}: not UTF-8") from error
        yield from _document(text, where)
