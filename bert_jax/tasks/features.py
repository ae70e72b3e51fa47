"""Labelled texts as batches of token ids, each a pure function of (texts, seed, step).

Letters: B rows of a global batch, R rows that are made here, S tokens a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import logging
from ml_collections import ConfigDict

from bert_jax.data import pipeline

_MUCH_UNKNOWN = 0.02  # share of unknown tokens that is worth a word


class Features:
    """The examples of one split of a task, one text with one label each.

    Attributes:
      num_examples: examples of an epoch, or of the evaluation.
      labels: (num_examples,) int32, in the order of an evaluation.
      batch_size: B.
      truncated: how many texts were cut to `data.seq_len` tokens.
    """

    def __init__(
        self,
        texts: Sequence[str],
        labels: Sequence[int],
        tokenizer: Any,
        config: ConfigDict,
        *,
        batch_size: int,
        train: bool,
    ) -> None:
        """Tokenises the texts as [CLS] text [SEP].

        Args:
          texts: at least one.
          labels: the class of each.
          tokenizer: of `bert_jax.data.tokenizer`.
          config: the whole config; `data.seq_len`, `data.buckets`, `seed` and `train.eval_rows` are read.
          batch_size: B, rows of a global batch.
          train: shuffled anew in every epoch, without end; or once and in order, at most
            `train.eval_rows` examples, evenly spread.

        Raises:
          ValueError: there is no text.
        """
        name = "training" if train else "evaluation"
        if not texts:
            raise ValueError(f"the {name} split has no example")
        chosen = np.arange(len(texts))
        if not train and 0 < config.train.eval_rows < len(texts):
            chosen = np.arange(config.train.eval_rows) * len(texts) // config.train.eval_rows
        self.num_examples, self.batch_size = len(chosen), batch_size
        self.labels = np.asarray(labels, np.int32)[chosen]
        self._train, self._seed = train, config.seed
        self._pad_id = tokenizer.pad_id
        self._row_lengths = np.array(sorted({*config.data.buckets, config.data.seq_len}))

        ids = tokenizer.encode_batch([texts[i] for i in chosen])
        longest = config.data.seq_len - 2
        self.truncated = sum(len(x) > longest for x in ids)
        ids = [[tokenizer.cls_id, *x[:longest], tokenizer.sep_id] for x in ids]
        self._lengths = np.array([len(x) for x in ids])
        self._ends = np.cumsum(self._lengths)
        self._tokens = np.concatenate(ids).astype(np.int32)
        if self.truncated:
            logging.warning(
                "%d of %d %s texts are cut to data.seq_len = %d tokens",
                self.truncated, len(ids), name, config.data.seq_len,
            )  # fmt: skip
        unknown = float(np.mean(self._tokens == tokenizer.unk_id))
        if unknown > _MUCH_UNKNOWN:
            logging.warning(
                "%.1f%% of the %s tokens are unknown to the vocabulary: is it the model's own?",
                100 * unknown, name,
            )  # fmt: skip

    def num_eval_batches(self, limit_rows: int = 0) -> int:
        """Returns the batches of an evaluation of all examples, or of the first `limit_rows` of them."""
        rows = min(self.num_examples, limit_rows) if limit_rows else self.num_examples
        return -(-rows // self.batch_size)

    def batch(self, step: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the given rows of the batch of a step, whatever was asked for before.

        A row has the smallest length of `data.buckets` and `data.seq_len` that holds the longest text
        of the whole global batch, so that all processes have the same. Rows after the end of an
        evaluation are padding: segment_ids 0 and weights 0.

        Args:
          step: number of the batch, from 0.
          rows: (R,) int: row numbers in the global batch, below B.

        Returns:
          `tokens`, `segment_ids`, `positions`, `type_ids` (R, S) int32, `labels` (R,) int32 and
          `weights` (R,) float32.
        """
        g = step * self.batch_size + np.arange(self.batch_size)
        index = g
        if self._train:
            _, index = pipeline.order(g, self.num_examples, self._seed)
        # Rows after the end have no length; they read example 0 and hold nothing of it.
        real = index < self.num_examples
        index = np.where(real, index, 0)
        lengths = np.where(real, self._lengths[index], 0)
        size = self._row_lengths[np.searchsorted(self._row_lengths, lengths.max())]

        rows = np.asarray(rows, np.int64)
        index, lengths, real = index[rows], lengths[rows], real[rows]
        column = np.arange(size)[None]
        inside = column < lengths[:, None]
        source = np.where(inside, (self._ends - self._lengths)[index][:, None] + column, 0)
        return {
            "tokens": np.where(inside, self._tokens[source], self._pad_id).astype(np.int32),
            "segment_ids": inside.astype(np.int32),
            "positions": np.where(inside, column, 0).astype(np.int32),
            "type_ids": np.zeros((len(rows), size), np.int32),
            "labels": np.where(real, self.labels[index], 0).astype(np.int32),
            "weights": real.astype(np.float32),
        }
