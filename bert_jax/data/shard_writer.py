"""Writes the files of a shard directory, in one pass and in constant memory; `shards` says the format."""

from __future__ import annotations

import json
import os
import pathlib
import zlib
from typing import Any

import numpy as np

from bert_jax.data import shards

SHARD_TOKENS = 1 << 26  # tokens a shard: 128 MiB of uint16


def token_dtype(vocab_size: int) -> np.dtype:
    """Returns the unsigned type that token ids of a vocabulary of `vocab_size` are stored in."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


class NpyWriter:
    """Writes a 1-D .npy file piece by piece, so that its length need not be known beforehand."""

    _HEADER = 128  # bytes: room for any length, and a multiple of 64 as the format asks

    def __init__(self, path: pathlib.Path, dtype: np.dtype | type) -> None:
        self.path, self.items, self.crc = path, 0, 0
        self._dtype = np.dtype(dtype).newbyteorder("<")
        path.write_bytes(bytes(self._HEADER))

    def write(self, array: np.ndarray) -> None:
        """Appends a 1-D array, cast to the file's type."""
        data = np.ascontiguousarray(array, self._dtype).tobytes()
        with self.path.open("ab") as file:  # not held open: an error elsewhere leaves nothing to close
            file.write(data)
        self.crc = zlib.crc32(data, self.crc)
        self.items += len(array)

    def close(self) -> dict[str, Any]:
        """Writes the header and flushes to disk. Returns the file's entry for the index."""
        magic = b"\x93NUMPY\x01\x00"
        size = self._HEADER - len(magic) - 2
        text = f"{{'descr': '{self._dtype.str}', 'fortran_order': False, 'shape': ({self.items},), }}"
        with self.path.open("r+b") as file:
            file.write(magic + size.to_bytes(2, "little") + text.ljust(size - 1).encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return {"file": self.path.name, "items": self.items, "crc32": self.crc}


class SplitWriter:
    """Writes the files of one split, in one pass and in constant memory."""

    def __init__(
        self, directory: pathlib.Path, split: str, vocab_size: int, shard_tokens: int = SHARD_TOKENS
    ) -> None:
        self._directory, self._split, self._shard_tokens = directory, split, shard_tokens
        self._dtype = token_dtype(vocab_size)
        self.unigram = np.zeros(vocab_size, np.int64)
        self._sentences = NpyWriter(directory / f"{split}.sentences.npy", np.int64)
        self._documents = NpyWriter(directory / f"{split}.documents.npy", np.int64)
        self._shards: list[dict[str, Any]] = []
        self._shard: NpyWriter | None = None
        self._tokens = 0
        self._document = -1

    def append(self, tokens: np.ndarray, lengths: np.ndarray, documents: np.ndarray) -> None:
        """Appends sentences.

        Args:
          tokens: integer (n,), their tokens, without special tokens.
          lengths: integer (m,), tokens of each sentence, each at least 1, with sum n.
          documents: integer (m,), the document of each sentence, never falling; a sentence with
            another number than the one before it starts a document.
        """
        if not len(lengths):
            return
        starts = self._tokens + np.cumsum(lengths, dtype=np.int64) - lengths
        first = np.diff(documents, prepend=self._document) != 0
        self._documents.write(self._sentences.items + np.flatnonzero(first))
        self._sentences.write(starts)
        self._document = int(documents[-1])
        self.unigram += np.bincount(tokens, minlength=len(self.unigram))
        self._tokens += len(tokens)
        while len(tokens):
            if self._shard is None:
                name = f"{self._split}-{len(self._shards):05d}.tokens.npy"
                self._shard = NpyWriter(self._directory / name, self._dtype)
            room = self._shard_tokens - self._shard.items
            self._shard.write(tokens[:room])
            tokens = tokens[room:]
            if self._shard.items == self._shard_tokens:
                self._shards.append(self._shard.close())
                self._shard = None

    def close(self) -> dict[str, Any]:
        """Finishes the files. Returns the split's entry for the index."""
        if self._shard is not None:
            self._shards.append(self._shard.close())
        counts = {
            "documents": self._documents.items,
            "sentences": self._sentences.items,
            "tokens": self._tokens,
        }
        self._documents.write(np.array([self._sentences.items]))
        self._sentences.write(np.array([self._tokens]))
        unigram = NpyWriter(self._directory / f"{self._split}.unigram.npy", np.int64)
        unigram.write(self.unigram)
        tables = {"sentences": self._sentences, "documents": self._documents, "unigram": unigram}
        return counts | {
            "tables": {name: table.close() for name, table in tables.items()},
            "shards": self._shards,
        }


def write_index(
    directory: pathlib.Path,
    *,
    tokenizer: str,
    vocab_size: int,
    splits: dict[str, dict[str, Any]],
    counts: dict[str, Any],
    **more: Any,
) -> None:
    """Writes shards.json, last of all files: a directory without it is not a shard directory.

    Args:
      directory: where the files of `splits` lie.
      tokenizer: digest of the tokenizer.
      vocab_size: V.
      splits: entry of each split, as `SplitWriter.close` returned it.
      counts: what preparation counted.
      **more: further entries, for people and for `prepare`.
    """
    index = {
        "format": shards.FORMAT,
        "tokenizer": tokenizer,
        "vocab_size": vocab_size,
        "dtype": token_dtype(vocab_size).name,
        "splits": splits,
        "counts": counts,
        **more,
    }
    part = directory / f"{shards.INDEX}.part"
    part.write_text(json.dumps(index, indent=2) + "\n")
    part.replace(directory / shards.INDEX)
