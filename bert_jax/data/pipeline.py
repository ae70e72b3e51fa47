"""Batches of token ids, each a pure function of (text, seed, step).

An example is a window of the text, a packed row of windows or a pair of sentence runs. Example
number step * B + row of a run is turned into an epoch and an index by a permutation that is computed
and not stored; the example's random numbers come from a generator keyed by (seed, epoch, index).
So a batch can be made at any step, at the same cost, by any process, and rows alone as well.

Letters: B rows of a global batch, S tokens a row, R rows that are made here.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from ml_collections import ConfigDict

from bert_jax import cores
from bert_jax.data.ordering import generators, order
from bert_jax.data.packing import Packing
from bert_jax.data.pairs import Pairs
from bert_jax.data.sentence_order import OrderPairs


class Objective(Protocol):
    """What an objective adds to a batch."""

    name: str

    def features(
        self, batch: dict[str, np.ndarray], generators: Sequence[np.random.Generator]
    ) -> dict[str, np.ndarray]:
        """Returns new and replaced entries of a batch; `generators` has one a row."""
        ...


def windows(borders: np.ndarray, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Cuts spans of the token stream into windows; every token is in exactly one.

    Args:
      borders: (n + 1,) int64: where the spans start, and the last one's end. Empty spans give none.
      tokens: most tokens in a window.

    Returns:
      starts, lengths: (N,) int64.
    """
    borders = np.asarray(borders, np.int64)
    count = -(-np.diff(borders) // tokens)
    number = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    starts = np.repeat(borders[:-1], count) + number * tokens
    return starts, np.minimum(np.repeat(borders[1:], count) - starts, tokens)


class Examples:
    """The examples of a prepared split.

    Attributes:
      total: different examples of the split.
      num_examples: examples of an epoch, or of the evaluation.
      batch_size: B.
    """

    def __init__(
        self,
        split: Any,
        tokenizer: Any,
        config: ConfigDict,
        *,
        objectives: Sequence[Objective],
        batch_size: int,
        train: bool,
        seq_len: int | None = None,
        phase: int = 0,
        part: int = 0,
    ) -> None:
        """Lays out the examples.

        Args:
          split: an open `shards.Split`.
          tokenizer: the `tokenizer.Tokenizer` that the text was prepared with.
          config: the whole config; `data`, `objective.nsp`, `objective.sop`, `seed` and `train.eval_rows`
            are read.
          objectives: what adds masks and labels; each has random numbers of its own, by its name.
          batch_size: B, rows of a global batch.
          train: shuffled anew in every epoch, without end; or once and in order, always with the
            same masks, at most `train.eval_rows` examples, evenly spread.
          seq_len: S; None is data.seq_len.
          phase: of `train.phases`: each trains in an order and with masks of its own.
          part: number of this text in a mixture: each has an order and masks of its own.

        Raises:
          ValueError: the split has no example, or cannot give pairs.
        """
        self._split, self._tokenizer, self._objectives = split, tokenizer, list(objectives)
        self._train, self.batch_size = train, batch_size
        # A seed of its own for each; config.seed, below 2**31, for the first of both.
        self._seed = config.seed + (part << 31) + ((phase if train else 0) << 47)
        self._seq_len = seq_len or config.data.seq_len
        self._pairs: Pairs | OrderPairs | None = None
        self._packing: Packing | None = None
        nsp, sop = config.objective.nsp, config.objective.sop
        if nsp.weight or sop.weight:
            kind, share = (Pairs, nsp.short_share) if nsp.weight else (OrderPairs, sop.short_share)
            self._pairs = kind(split.sentences, split.documents, self._seq_len, share)
            self.total = self._pairs.num_examples
        else:
            borders = split.sentences if config.data.unit == "sentence" else split.sentences[split.documents]
            self._starts, self._lengths = windows(borders, self._seq_len - 2)
            self.total = len(self._starts)
            if config.data.packing:
                self._packing = Packing(self._lengths, self._seq_len, config.data.max_packed, self._seed)
                self.total = self._packing.num_rows
        if not self.total:
            name = "training" if train else "evaluation"
            raise ValueError(f"the {name} split has no text: give more, or another data.eval_fraction")
        limit = 0 if train else config.train.eval_rows
        self.num_examples = min(self.total, limit) if limit else self.total

    @property
    def fill_share(self) -> float:
        """Share of an epoch's tokens that is not padding; NaN for pairs, whose lengths are drawn."""
        if self._pairs:
            return math.nan
        if self._packing:
            return self._packing.fill_share
        return (int(self._lengths.sum()) / len(self._lengths) + 2) / self._seq_len

    def num_eval_batches(self) -> int:
        """Returns the batches of an evaluation."""
        return -(-self.num_examples // self.batch_size)

    def batch(self, step: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the given rows of the batch of a step, whatever was asked for before.

        Rows after the end of an evaluation are padding: segment_ids 0 and every weight 0.

        Args:
          step: number of the batch, from 0.
          rows: (R,) int: row numbers in the global batch, below B.
        """
        g = step * self.batch_size + np.asarray(rows, np.int64)
        if self._train:
            return self.numbered(g)
        valid = g < self.num_examples
        index = np.where(valid, g, 0) * self.total // self.num_examples
        return without(self.take(np.zeros_like(index), index), ~valid, self._tokenizer.pad_id)

    def numbered(self, g: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the rows of training examples by their numbers since the run's start, (R,) int64."""
        return self.take(*order(g, self.total, self._seed))

    def take(self, epoch: np.ndarray, index: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the rows of examples, with what the objectives add.

        Args:
          epoch: (R,) int64: of each, which decides on its masks; 0 in evaluation.
          index: (R,) int64: numbers below `total`.
        """
        use = "train" if self._train else "eval"
        batch = self._rows(epoch, index, use)
        for objective in self._objectives:
            random = generators(self._seed, f"{use} {objective.name}", epoch, index)
            batch = batch | objective.features(batch, random)
        return batch

    def _rows(self, epoch: np.ndarray, index: np.ndarray, use: str) -> dict[str, np.ndarray]:
        if self._pairs:
            random = generators(self._seed, f"{use} pairs", epoch, index)
            spans = self._pairs.spans(index, random)
            batch = self._lay_out(
                np.stack([spans.a_start, spans.b_start], axis=1).ravel(),
                np.stack([spans.a_length, spans.b_length], axis=1).ravel(),
                np.full(len(index), 2),
                pairs=True,
            )
            return batch | {"pair_labels": spans.labels}
        if self._packing:
            numbers, counts = self._packing.windows(epoch, index)
            return self._lay_out(self._starts[numbers], self._lengths[numbers], counts)
        return self._lay_out(self._starts[index], self._lengths[index], np.ones(len(index), np.int64))

    def _lay_out(
        self, starts: np.ndarray, lengths: np.ndarray, counts: np.ndarray, pairs: bool = False
    ) -> dict[str, np.ndarray]:
        """Writes spans of text into rows, counts[r] of them into row r, each with [CLS] and [SEP].

        Of a pair, the second span has no [CLS]: both are one unit, and differ in type.
        """
        tok, shape = self._tokenizer, (len(counts), self._seq_len)
        row = np.repeat(np.arange(len(counts)), counts)
        number = np.arange(len(starts)) - np.repeat(np.cumsum(counts) - counts, counts)  # within the row
        head = (number == 0) if pairs else np.ones(len(starts), bool)
        sizes = lengths + 1 + head
        ends = np.cumsum(sizes)
        before = np.concatenate([[0], ends])  # tokens of all spans before each
        in_row = before[:-1] - before[np.repeat(np.cumsum(counts) - counts, counts)]
        flat = np.full(ends[-1] if len(ends) else 0, tok.sep_id, np.int32)
        for start, length, at in zip(
            starts.tolist(), lengths.tolist(), (before[:-1] + head).tolist(), strict=True
        ):
            flat[at : at + length] = self._split.read(start, start + length)
        flat[before[:-1][head]] = tok.cls_id
        offset = np.arange(len(flat)) - np.repeat(before[:-1], sizes)
        target = np.repeat(row * self._seq_len + in_row, sizes) + offset
        batch = {
            "tokens": np.full(shape, tok.pad_id, np.int32),
            "segment_ids": np.zeros(shape, np.int32),
            "positions": np.zeros(shape, np.int32),
            "type_ids": np.zeros(shape, np.int32),
        }
        batch["tokens"].flat[target] = flat
        batch["segment_ids"].flat[target] = np.repeat(np.ones_like(number) if pairs else number + 1, sizes)
        batch["positions"].flat[target] = offset + np.repeat(in_row, sizes) if pairs else offset
        if pairs:
            batch["type_ids"].flat[target] = np.repeat(number, sizes)
        return batch


def without(batch: dict[str, np.ndarray], rows: np.ndarray, pad_id: int) -> dict[str, np.ndarray]:
    """Returns a batch in which some rows, (R,) bool, are padding: `pad_id` for tokens, 0 for all else."""
    if not rows.any():
        return batch
    result = {}
    for key, value in batch.items():
        result[key] = value.copy()
        result[key][rows] = pad_id if key == "tokens" else 0
    return result


class Batches(Protocol):
    """Anything that makes the rows of a step's batch."""

    def batch(self, step: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the given rows of the batch of a step."""
        ...


def dataset(
    examples: Batches, start: int, stop: int, rows: np.ndarray, workers: int = 0, prefetch: int = 4
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the batches of steps start .. stop - 1, made ahead by tf.data.

    Args:
      examples: makes batches, `Examples` for one; all of them have the same keys and types.
      start, stop: steps.
      rows: (R,) int: the rows of the global batch that this process needs.
      workers: threads that make batches; 0 is one a core.
      prefetch: batches made ahead.

    Raises:
      Whatever `examples.batch` raises, as it raised it.
    """
    import tensorflow as tf

    with contextlib.suppress(RuntimeError):  # too late if TensorFlow runs already
        tf.config.set_visible_devices([], "GPU")
    if start >= stop:
        return
    like = examples.batch(start, rows)
    names = list(like)
    errors: dict[int, Exception] = {}  # by step; TensorFlow would wrap them in its own

    def make(step: np.ndarray) -> list[np.ndarray]:
        try:
            batch = examples.batch(int(step), rows)
        except Exception as error:
            errors[int(step)] = error
            batch = like
        return [batch[name] for name in names]

    def load(step: Any) -> dict[str, Any]:
        values = tf.numpy_function(make, [step], [like[name].dtype for name in names], stateful=False)
        return dict(zip(names, values, strict=True))

    steps = tf.data.Dataset.range(start, stop)
    data = steps.map(load, num_parallel_calls=workers or len(cores.available()), deterministic=True)
    for step, batch in enumerate(data.prefetch(prefetch).as_numpy_iterator(), start):
        if step in errors:
            raise errors[step]
        yield batch
