"""Parts, in the order of the corpus, to the files of a shard directory and what is counted on the way."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from bert_jax.data.duplicates import DocumentHash, HashBag, repeated, shared
from bert_jax.data.parts import SPLITS
from bert_jax.data.shard_writer import SplitWriter
from bert_jax.data.tokenizer import Tokenizer


class _SplitMerger:
    """One split: its shards, its words, and the hashes of its paragraphs and documents."""

    def __init__(self, out: pathlib.Path, scratch: pathlib.Path, split: str, vocab_size: int) -> None:
        self._writer = SplitWriter(out, split, vocab_size)
        self._words = np.zeros(2, np.int64)
        self._document, self._hash = -1, DocumentHash()
        self.paragraphs = HashBag(scratch / f"{split}-paragraphs")
        self.long = HashBag(scratch / f"{split}-long")
        self.documents = HashBag(scratch / f"{split}-documents")

    def add(self, part: dict[str, np.ndarray]) -> None:
        self._writer.append(part["tokens"], part["lengths"], part["documents"])
        self._words += part["words"]
        hashes, owners = part["hashes"], part["owners"]
        self.paragraphs.add(hashes)
        self.long.add(hashes[part["long"]])
        for piece in np.split(np.arange(len(owners)), np.flatnonzero(np.diff(owners)) + 1):
            if len(piece):
                if owners[piece[0]] != self._document:
                    self._end_document()
                    self._document = int(owners[piece[0]])
                self._hash.add(hashes[piece])

    def _end_document(self) -> None:
        if self._document >= 0:
            self.documents.add(self._hash.value())
        self._hash = DocumentHash()

    def close(self, unknown: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the split's entry for the index, and its counts."""
        self._end_document()
        entry = self._writer.close()
        tokens, words = entry["tokens"], max(1, int(self._words[0]))
        counts = {
            "documents": entry["documents"],
            "sentences": entry["sentences"],
            "tokens": tokens,
            "words": int(self._words[0]),
            "pieces_per_word": round(tokens / words, 4),
            "split_words": round(int(self._words[1]) / words, 6),
            "unknown_tokens": round(int(self._writer.unigram[unknown]) / max(1, tokens), 6),
            "duplicate_documents": repeated(self.documents),
            "duplicate_paragraphs": repeated(self.paragraphs),
        }
        return entry, counts


def merge(
    parts: Iterable[pathlib.Path], out: pathlib.Path, scratch: pathlib.Path, tokenizer: Tokenizer
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Writes the shards of all splits, in one pass and in constant memory.

    Args:
      parts: the parts in order; one that is damaged is removed, and said.
      out: an empty folder, for the shards.
      scratch: a folder that is not there yet, for the hashes.
      tokenizer: what made the parts.

    Returns:
      the entries of the index by split, and the counts: by split, and `overlap`, the share of the
      eval split's paragraphs of at least 20 characters that occur in the train split.
    """
    mergers = {split: _SplitMerger(out, scratch, split, tokenizer.vocab_size) for split in SPLITS}
    for path in parts:
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                part = {name: arrays[name] for name in arrays.files}
        except Exception as error:  # whatever NumPy and zipfile raise on a damaged file
            path.unlink(missing_ok=True)
            raise ValueError(
                f"{path} was damaged ({error}) and is removed: run again to make it anew"
            ) from error
        for split, merger in mergers.items():
            prefix = f"{split}_"
            merger.add({k.removeprefix(prefix): v for k, v in part.items() if k.startswith(prefix)})
    entries, counts = {}, {}
    for split, merger in mergers.items():
        entries[split], counts[split] = merger.close(tokenizer.unk_id)
    asked = sum(len(bucket) for bucket in mergers["eval"].long.buckets())
    common = shared(mergers["eval"].long, mergers["train"].paragraphs)
    counts["overlap"] = round(common / max(1, asked), 6)
    return entries, counts
