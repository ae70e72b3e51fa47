"""Prepared text on disk: token shards with tables of sentences and documents, format version 1.

    DIR/shards.json             index: format, tokenizer digest, vocabulary size, files, counts
    DIR/tokenizer/              the tokenizer that made the tokens
    DIR/train-00000.tokens.npy  1-D token ids, uint16 (vocabularies up to 65,536) or uint32
    DIR/train.sentences.npy     int64 (num_sentences + 1,), token offset where each sentence starts
    DIR/train.documents.npy     int64 (num_documents + 1,), sentence index where each document starts
    DIR/train.unigram.npy       int64 (V,), how often each token occurs

and the same for `eval`. All are plain .npy files, read through memory maps. The index holds each
file's number of items and CRC-32; a shard's is checked when it is first read from, a table's when
the split is opened, so a damaged file is refused by name and never trained on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shutil
import tempfile
import zlib
from typing import Any

import numpy as np
from etils import epath

from bert_jax import jsonl

FORMAT = 1
INDEX = "shards.json"

_IS_BESIDE = re.compile(r"\w[^/\\\0]*").fullmatch  # a name that leads nowhere else
_CHUNK = 1 << 22  # bytes read at a time where a whole file is read


class ShardError(ValueError):
    """A shard directory that cannot be read; the message names the file and the mend."""


def read_index(directory: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the index of a shard directory, local or gs://.

    Raises:
      ShardError: no index there, not readable as one, or of another format version.
    """
    path = epath.Path(directory).expanduser() / INDEX
    try:
        index = jsonl.parse(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ShardError(f"{directory} is no shard directory: it has no {INDEX}; make one with "
                         "python -m bert_jax.prepare") from error  # fmt: skip
    except ValueError as error:
        raise ShardError(f"{path} is damaged ({error}): prepare the text again") from error
    found = index.get("format") if isinstance(index, dict) else None
    if found != FORMAT:
        raise ShardError(f"{path} has shard format {found!r}; this version reads format {FORMAT}: "
                         "prepare the text again")  # fmt: skip
    lacking = [key for key in ("tokenizer", "vocab_size", "dtype", "splits", "counts") if key not in index]
    if lacking:
        raise ShardError(f"{path} is damaged (no {lacking[0]!r}): prepare the text again")
    return index


def cache_root(cache_dir: str = "") -> pathlib.Path:
    """Returns the cache: `cache_dir`, else $BERT_JAX_CACHE, else ~/.cache/bert_jax."""
    return pathlib.Path(cache_dir or os.environ.get("BERT_JAX_CACHE") or "~/.cache/bert_jax").expanduser()


def mirror(directory: str | os.PathLike[str], cache_dir: str = "") -> pathlib.Path:
    """Returns a local path of a shard directory; one at gs:// is copied into the cache, once.

    Memory maps need local files. The copy is keyed by address and index, so other shards at the
    same address are copied anew, and it appears only when it is whole.
    """
    source = epath.Path(directory).expanduser()
    if "://" not in os.fspath(source):
        return pathlib.Path(source)
    index = read_index(source)
    name = f"{source}\n{json.dumps(index, sort_keys=True)}"
    target = cache_root(cache_dir) / f"mirror-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    part = pathlib.Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        _copy(source, part)
        try:
            part.rename(target)
        except OSError:  # another process was first: its copy is as good
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return target


def _copy(source: epath.Path, target: pathlib.Path) -> None:
    for entry in source.iterdir():
        copy = target / entry.name
        if entry.is_dir():
            copy.mkdir()
            _copy(entry, copy)
        else:
            with entry.open("rb") as read, copy.open("wb") as write:
                shutil.copyfileobj(read, write, _CHUNK)


def _map(directory: pathlib.Path, entry: dict[str, Any], dtype: np.dtype, check: bool = True) -> np.ndarray:
    """Returns the read-only memory map of a file that fits its entry in the index."""
    if not _IS_BESIDE(entry["file"]):
        raise ValueError(f"it names the file {entry['file']!r}")
    path = directory / entry["file"]
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy parses the header as Python, and raises what that raises, too
        raise ShardError(f"{path} is missing or damaged ({error}): prepare the text again") from error
    if array.dtype != dtype or array.shape != (entry["items"],):
        raise ShardError(f"{path} is damaged: {array.dtype} {array.shape}, and {INDEX} says {dtype} "
                         f"({entry['items']},): prepare the text again")  # fmt: skip
    if not check:
        return array
    crc = 0
    step = _CHUNK // array.itemsize
    for start in range(0, len(array), step):
        crc = zlib.crc32(array[start : start + step], crc)
    if crc != entry["crc32"]:
        raise ShardError(f"{path} is damaged: its CRC-32 is not that in {INDEX}; prepare the text again")
    return array


def _check_same(path: pathlib.Path, then: os.stat_result | None) -> None:
    """Raises ShardError where a mapped file is written to: its tokens changed, or, shorter, would be a crash.

    One that was taken away, or replaced as a whole, stays as it was for who has it open.
    """
    try:
        now = os.stat(path)
    except OSError:
        return
    if (
        then
        and now.st_ino == then.st_ino
        and (now.st_size, now.st_mtime_ns) != (then.st_size, then.st_mtime_ns)
    ):
        raise ShardError(
            f"{path} was changed while it is read: prepare the text again, into another directory"
        )


@dataclasses.dataclass
class Split:
    """One split of prepared text.

    Attributes:
      sentences: int64 (num_sentences + 1,), token offset where each sentence starts; the last is
        num_tokens. Memory-mapped.
      documents: int64 (num_documents + 1,), sentence index where each document starts; the last is
        num_sentences. Memory-mapped.
      unigram: int64 (V,), how often each token occurs.
    """

    num_tokens: int
    num_sentences: int
    num_documents: int
    sentences: np.ndarray
    documents: np.ndarray
    unigram: np.ndarray
    _directory: pathlib.Path
    _dtype: np.dtype
    _shards: list[dict[str, Any]]

    def __post_init__(self) -> None:
        sizes = [shard["items"] for shard in self._shards]
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        self._maps: list[np.ndarray | None] = [None] * len(sizes)
        self._stats: list[os.stat_result | None] = [None] * len(sizes)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Returns int32 (stop - start,): the tokens [start, stop), over shard borders.

        Raises:
          IndexError: not 0 <= start <= stop <= num_tokens.
          ShardError: a shard that is missing or damaged.
        """
        if not 0 <= start <= stop <= self.num_tokens:
            raise IndexError(f"tokens [{start}, {stop}) of a split of {self.num_tokens}")
        out = np.empty(stop - start, np.int32)
        shard = int(np.searchsorted(self._starts, start, "right")) - 1
        done = 0
        while done < len(out):
            tokens = self._maps[shard]
            path = self._directory / self._shards[shard]["file"]
            if tokens is None:
                self._stats[shard] = path.stat() if path.exists() else None
                tokens = self._maps[shard] = _map(self._directory, self._shards[shard], self._dtype)
            _check_same(path, self._stats[shard])
            begin = start + done - int(self._starts[shard])
            piece = tokens[begin : begin + len(out) - done]
            out[done : done + len(piece)] = piece
            done += len(piece)
            shard += 1
        return out


def open(directory: str | os.PathLike[str], split: str, cache_dir: str = "") -> Split:
    """Opens a split of a shard directory; one at gs:// is mirrored into the cache first.

    Args:
      directory: where `shards.json` lies, local or gs://.
      split: "train" or "eval".
      cache_dir: where the mirror lies (see `cache_root`).

    Raises:
      ShardError: no such split, another format version, or a file that is missing or damaged.
    """
    local = mirror(directory, cache_dir)
    index = read_index(local)
    try:
        return _open(local, index, split, directory)
    except ShardError:
        raise
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:  # JSON that is no index
        raise ShardError(
            f"{local / INDEX} is damaged ({type(error).__name__}: {error}): prepare the text again"
        ) from error


def _open(local: pathlib.Path, index: dict[str, Any], split: str, directory: str | os.PathLike[str]) -> Split:
    if index["dtype"] not in ("uint16", "uint32"):  # NumPy would parse any other text as Python
        raise ValueError(f"its dtype is {index['dtype']!r}")
    dtype = np.dtype(index["dtype"])
    if split not in index["splits"]:
        raise ShardError(f"{directory} has no {split} split: prepare it with data.eval_path or with "
                         "data.eval_fraction above 0")  # fmt: skip
    entry = index["splits"][split]
    int64 = np.dtype(np.int64)
    tables = {
        name: _map(local, entry["tables"][name], int64) for name in ("sentences", "documents", "unigram")
    }
    for shard in entry["shards"]:  # whole by size now; by content when it is first read
        _map(local, shard, dtype, check=False)
    ends = [
        int(tables["sentences"][-1]),
        int(tables["documents"][-1]),
        sum(s["items"] for s in entry["shards"]),
    ]
    if ends != [entry["tokens"], entry["sentences"], entry["tokens"]]:
        raise ShardError(f"{local / INDEX} is damaged: the tables of its {split} split do not agree; "
                         "prepare the text again")  # fmt: skip
    return Split(
        num_tokens=entry["tokens"],
        num_sentences=entry["sentences"],
        num_documents=entry["documents"],
        _directory=local,
        _dtype=dtype,
        _shards=entry["shards"],
        **tables,
    )
