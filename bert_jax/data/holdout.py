"""Which text is held out for evaluation: a stated rule of positions in the corpus, without a seed.

- `data.eval_path` is set: all of that text, and nothing of `data.path`.
- `data.holdout = "documents"`: of each run of 1 / eval_fraction documents one, chosen by a hash of
  the run's number.
- `data.holdout = "tail"`: of each document the paragraphs that begin in its last eval_fraction, by
  characters.

Two splits never share a paragraph's place in the corpus; text that occurs twice may be in both,
and `prepare` counts it.
"""

from __future__ import annotations

import hashlib
import math
import pathlib
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

from ml_collections import ConfigDict

from bert_jax.data import corpus
from bert_jax.data.corpus import CorpusError

Assigned = tuple[str, int, str]  # split, running number of the document, text of the paragraph


def held_out(document: int, fraction: float) -> bool:
    """Returns whether a document is the one of its run that is held out."""
    run = math.floor(document * fraction)
    first = math.ceil(run / fraction)
    size = math.ceil((run + 1) / fraction) - first
    digest = hashlib.blake2b(str(run).encode(), digest_size=8).digest()
    return document == first + int.from_bytes(digest, "big") % size


def assigned(config: ConfigDict, lengths: pathlib.Path) -> Iterator[Assigned]:
    """Yields each paragraph with its split, "train" or "eval", and its document's number, never falling.

    Args:
      config: the whole config.
      lengths: the file that `measure` wrote.
    """
    document = -1
    with lengths.open("rb") as file:
        for split, document, text in _assign(config, corpus.paragraphs(config), 0, file):
            yield split, document, text
    if config.data.eval_path:
        yield from _all_held_out(corpus.eval_paragraphs(config), document + 1)


def assigned_of(config: ConfigDict, key: str, file: str, before: int) -> Iterator[Assigned]:
    """Yields of one of `corpus.files_of` what `assigned` yields of it.

    Args:
      config: the whole config.
      key, file: which.
      before: number of documents in the files before it.
    """
    if key == "data.eval_path":
        yield from _all_held_out(corpus.paragraphs_of(config, key, file), before)
        return
    with tempfile.TemporaryFile() as lengths:
        if _needs_lengths(config):
            _measure(corpus.paragraphs_of(config, key, file), lengths)
            lengths.seek(0)
        yield from _assign(config, corpus.paragraphs_of(config, key, file), before, lengths)


def _assign(
    config: ConfigDict, paragraphs: Iterator[corpus.Paragraph], before: int, lengths: BinaryIO
) -> Iterator[Assigned]:
    data = config.data
    fraction = 0.0 if data.eval_path else data.eval_fraction
    tail = _needs_lengths(config)
    document, split, begun, limit = before - 1, "train", 0, math.inf
    for paragraph in paragraphs:
        if paragraph.new_document:
            document += 1
            if tail:
                begun, limit = 0, (1 - fraction) * int.from_bytes(lengths.read(8), "little")
            elif fraction:
                split = "eval" if held_out(document, fraction) else "train"
        if tail:
            split = "eval" if begun >= limit else "train"
            begun += len(paragraph.text)
        yield split, document, paragraph.text


def _all_held_out(paragraphs: Iterator[corpus.Paragraph], before: int) -> Iterator[Assigned]:
    document = before - 1
    for paragraph in paragraphs:
        document += paragraph.new_document
        yield "eval", document, paragraph.text


def _needs_lengths(config: ConfigDict) -> bool:
    data = config.data
    return not data.eval_path and data.eval_fraction > 0 and data.holdout == "tail"


def measure(config: ConfigDict, lengths: pathlib.Path) -> None:
    """Writes the characters of each document, 8 bytes little-endian each, where the rule needs them."""
    with lengths.open("wb") as file:
        if _needs_lengths(config):
            _measure(corpus.paragraphs(config), file)


def _measure(paragraphs: Iterator[corpus.Paragraph], file: BinaryIO) -> None:
    size, begun = 0, False
    for paragraph in paragraphs:
        if paragraph.new_document and begun:
            file.write(size.to_bytes(8, "little"))
            size = 0
        begun = True
        size += len(paragraph.text)
    if begun:
        file.write(size.to_bytes(8, "little"))


def check(config: ConfigDict, lengths: pathlib.Path) -> None:
    """Raises CorpusError if a split would be empty; reads only as far as that takes."""
    data = config.data
    if data.eval_path:
        next(corpus.paragraphs(config))
        next(corpus.eval_paragraphs(config))
        return
    wanted = {"train", "eval"} if data.eval_fraction else {"train"}
    documents = 0
    for split, document, _ in assigned(config, lengths):
        wanted.discard(split)
        documents = document + 1
        if not wanted:
            return
    rule = f"data.eval_fraction = {data.eval_fraction} of {documents} document{'s' * (documents != 1)}"
    lacking = "holds none out" if "eval" in wanted else "leaves none to train on"
    if data.holdout == "documents":
        raise CorpusError(f'{rule} {lacking}: set data.holdout = "tail", data.eval_path or another fraction')
    raise CorpusError(f'{rule}, data.holdout = "tail", {lacking}: no paragraph begins that late; '
                      'set data.holdout = "documents" or data.eval_path')  # fmt: skip
