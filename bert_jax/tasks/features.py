"""Labelled rows of token ids as batches, each a pure function of (examples, seed, step).

Letters: N examples, C choices an example, B examples of a global batch, R of them that are made here,
S tokens a row.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging
from ml_collections import ConfigDict

from bert_jax.data import pipeline
from bert_jax.data.encoding import MUCH_UNKNOWN

_AT_ONCE = 10_000  # texts that are encoded before they become arrays, which are smaller than lists


class Examples:
    """The examples of one split of a task: rows of tokens, with what else belongs to each.

    Attributes:
      num_examples: N, examples of an epoch, or of the evaluation.
      batch_size: B.
      choices: C, rows of tokens an example.
    """

    def __init__(
        self,
        ids: Sequence[Sequence[int]],
        type_ids: Sequence[Sequence[int]] | None,
        tokenizer: Any,
        config: ConfigDict,
        *,
        batch_size: int,
        train: bool,
        arrays: Mapping[str, np.ndarray] | None = None,
        per_token: Mapping[str, Sequence[Sequence[float]]] | None = None,
        choices: int = 1,
    ) -> None:
        """Keeps the rows, each as it is to be read: with its special tokens, cut to `data.seq_len`.

        Args:
          ids: (N * C) rows of token ids, an example's choices one after the other.
          type_ids: the types of the same tokens; None for 0.
          tokenizer: of `bert_jax.data.tokenizer`.
          config: the whole config; `data.seq_len`, `data.buckets`, `task.train_rows` and `seed` are read.
          batch_size: B.
          train: shuffled anew in every epoch, without end; or once and in order.
          arrays: by name, an array of N entries that each example brings with it into a batch: its
            label, say. Floats become float32, all else int32.
          per_token: by name, N * C rows with a value for each token of `ids`, such as its label or the
            weight of its loss; padding has 0.
          choices: C.

        Raises:
          ValueError: there is no example, or a row, its types or values do not fit each other.
        """
        name = "training" if train else "evaluation"
        if not len(ids):
            raise ValueError(f"the {name} split has no example")
        self.num_examples, odd = divmod(len(ids), choices)
        if odd:
            raise ValueError(f"{len(ids)} rows are not {choices} for each example")
        if train and 0 < config.task.train_rows < self.num_examples:
            logging.info(
                "training on %d of %d examples, evenly spread (task.train_rows)",
                config.task.train_rows, self.num_examples,
            )  # fmt: skip
            chosen = evenly_spread(self.num_examples, config.task.train_rows)
            rows = (chosen[:, None] * choices + np.arange(choices)[None]).ravel()
            ids = [ids[i] for i in rows]
            type_ids = None if type_ids is None else [type_ids[i] for i in rows]
            arrays = {key: np.asarray(value)[chosen] for key, value in (arrays or {}).items()}
            per_token = {key: [value[i] for i in rows] for key, value in (per_token or {}).items()}
            self.num_examples = len(chosen)
        self.batch_size, self.choices = batch_size, choices
        self._train, self._seed = train, config.seed
        self._pad_id = tokenizer.pad_id
        self._row_lengths = np.array(sorted({*config.data.buckets, config.data.seq_len}))
        self._lengths = np.array([len(row) for row in ids])
        self._ends = np.cumsum(self._lengths)
        if self._lengths.max() > config.data.seq_len:
            raise ValueError(
                f"a row of {self._lengths.max()} tokens is longer than data.seq_len = {config.data.seq_len}"
            )
        self._arrays = {key: _narrow(np.asarray(value)) for key, value in (arrays or {}).items()}
        for key, value in self._arrays.items():
            if len(value) != self.num_examples:
                raise ValueError(f"{len(value)} {key} for {self.num_examples} examples")
        self._per_token = {"tokens": self._flat("tokens", ids)}
        if type_ids is not None:
            self._per_token["type_ids"] = self._flat("type_ids", type_ids).astype(np.int8)
        self._per_token |= {key: self._flat(key, rows) for key, rows in (per_token or {}).items()}
        unknown = float(np.mean(self._per_token["tokens"] == tokenizer.unk_id))
        if unknown > MUCH_UNKNOWN:
            logging.warning(
                "%.1f%% of the %s tokens are unknown to the vocabulary: is it the model's own?",
                100 * unknown, name,
            )  # fmt: skip

    def _flat(self, key: str, rows: Sequence[Sequence[float]]) -> np.ndarray:
        """Returns the values of all rows after one another."""
        if [len(row) for row in rows] != self._lengths.tolist():
            raise ValueError(f"{key} do not have one value for each token")
        return _narrow(np.concatenate([np.asarray(row) for row in rows]))

    def seeded(self, seed: int) -> Examples:
        """Returns the same examples in the order of another seed."""
        other = copy.copy(self)
        other._seed = seed
        return other

    def ids(self, example: int) -> list[list[int]]:
        """Returns the token ids of an example, each of its C rows."""
        rows = range(example * self.choices, (example + 1) * self.choices)
        tokens = self._per_token["tokens"]
        return [tokens[self._ends[row] - self._lengths[row] : self._ends[row]].tolist() for row in rows]

    def num_eval_batches(self) -> int:
        """Returns the batches of an evaluation."""
        return -(-self.num_examples // self.batch_size)

    def batch(self, step: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the given rows of the batch of a step, whatever was asked for before.

        A row has the smallest length of `data.buckets` and `data.seq_len` that holds the longest row
        of the whole global batch, so that all processes have the same. Examples after the end of an
        evaluation are padding: 0 in all but the tokens.

        Args:
          step: number of the batch, from 0.
          rows: (R,) int: numbers of examples in the global batch, below B.

        Returns:
          `tokens`, `segment_ids`, `positions`, `type_ids` and what has a value a token, (R, S), or
          (R, C, S) where C is not 1; `weights` (R,) float32, and the `arrays`, (R, ...).
        """
        g = step * self.batch_size + np.arange(self.batch_size)
        index = g
        if self._train:
            _, index = pipeline.order(g, self.num_examples, self._seed)
        # Examples after the end have no length; they read example 0 and hold nothing of it.
        real = index < self.num_examples
        index = np.where(real, index, 0)
        row = index[:, None] * self.choices + np.arange(self.choices)[None]  # (B, C)
        lengths = np.where(real[:, None], self._lengths[row], 0)
        size = self._row_lengths[np.searchsorted(self._row_lengths, lengths.max())]

        rows = np.asarray(rows, np.int64)
        index, lengths, real, row = index[rows], lengths[rows].ravel(), real[rows], row[rows].ravel()
        column = np.arange(size)[None]
        inside = column < lengths[:, None]
        source = np.where(inside, (self._ends - self._lengths)[row][:, None] + column, 0)
        made = {
            "tokens": np.full(inside.shape, self._pad_id, np.int32),
            "segment_ids": inside.astype(np.int32),
            "positions": np.where(inside, column, 0).astype(np.int32),
            "type_ids": np.zeros(inside.shape, np.int32),
        }
        for key, values in self._per_token.items():
            beside = self._pad_id if key == "tokens" else 0
            kind = np.int32 if values.dtype == np.int8 else values.dtype
            made[key] = np.where(inside, values[source], beside).astype(kind)
        if self.choices > 1:
            made = {key: x.reshape(len(rows), self.choices, size) for key, x in made.items()}
        made["weights"] = real.astype(np.float32)
        for key, values in self._arrays.items():
            shown = real.reshape(-1, *(1,) * (values.ndim - 1))
            made[key] = np.where(shown, values[index], 0).astype(values.dtype)
        return made


class Features(Examples):
    """Texts, or pairs of texts, with one label each.

    Attributes:
      labels: (N,) int32 classes or float32 values, in the order of an evaluation.
      numbers: (N,) which of the given texts the examples are.
      truncated: how many rows were cut to `data.seq_len` tokens.
    """

    def __init__(
        self,
        texts: Sequence[str],
        labels: Sequence[float] | None,
        tokenizer: Any,
        config: ConfigDict,
        *,
        batch_size: int,
        train: bool,
        pairs: Sequence[str] | None = None,
        choices: int = 1,
        everything: bool = False,
        groups: Sequence[int] | None = None,
    ) -> None:
        """Tokenises [CLS] text [SEP], or [CLS] text [SEP] pair [SEP]; longer ones are cut (`encode`).

        Args:
          texts: N * C of them, an example's choices one after the other.
          labels: of each example its class (ints) or value (floats); None where they are not known,
            and stand as 0.
          tokenizer, config, batch_size, train, choices: as in `Examples`; of an evaluation, at most
            `train.eval_rows` examples are taken, evenly spread.
          pairs: second texts.
          everything: an evaluation takes all, whatever `train.eval_rows` says.
          groups: (N,) numbers, from 0, of what is judged together, of which an evaluation takes all or none.

        Raises:
          ValueError: there is no text.
        """
        count = len(texts) // choices
        most = 0 if train or everything else config.train.eval_rows
        self.numbers = evenly_spread(count, most) if groups is None else whole_groups(groups, most)
        row = (self.numbers[:, None] * choices + np.arange(choices)[None]).ravel()
        labels = np.zeros(count, np.int32) if labels is None else _narrow(np.asarray(labels))
        self.labels = labels[self.numbers]
        ids, type_ids, self.truncated = encode(
            tokenizer,
            [texts[i] for i in row],
            None if pairs is None else [pairs[i] for i in row],
            config.data.seq_len,
        )
        super().__init__(
            ids, type_ids, tokenizer, config,
            batch_size=batch_size, train=train, arrays={"labels": self.labels}, choices=choices,
        )  # fmt: skip
        if self.truncated:
            logging.warning(
                "%d of %d %s texts are cut to data.seq_len = %d tokens",
                self.truncated, len(ids), "training" if train else "evaluation", config.data.seq_len,
            )  # fmt: skip


def evenly_spread(count: int, most: int) -> np.ndarray:
    """Returns which of `count` examples an evaluation of at most `most` reads; 0 reads all."""
    if not 0 < most < count:
        return np.arange(count)
    return np.arange(most) * count // most


def whole_groups(groups: Sequence[int], most: int) -> np.ndarray:
    """Returns which examples an evaluation of at most `most` reads, each group whole; 0 reads all.

    One group is read at least, whatever its size.

    Args:
      groups: (N,) the number of each example's group, all from 0 on.
      most: examples.
    """
    groups = np.asarray(groups)
    if not 0 < most < len(groups):
        return np.arange(len(groups))
    sizes = np.bincount(groups)
    count = max(1, most * len(sizes) // len(groups))
    while count > 1 and sizes[evenly_spread(len(sizes), count)].sum() > most:
        count -= 1
    return np.flatnonzero(np.isin(groups, evenly_spread(len(sizes), count)))


def encode(
    tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, seq_len: int
) -> tuple[list[np.ndarray], list[np.ndarray], int]:
    """Returns ids and type ids of each text or pair with its special tokens, and how many were cut.

    A text that is too long loses its end. Of a pair the longer text does, until both are of one length,
    and from there on both: "longest first", as Hugging Face's tokenizers have it by default.

    Args:
      tokenizer: of `bert_jax.data.tokenizer`.
      texts: the texts.
      pairs: as many second texts; None for single ones.
      seq_len: S, the most tokens of a row.
    """
    ids, type_ids, cut = [], [], 0
    for start in range(0, len(texts), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        for row, types, whole in rows(tokenizer, texts[some], pairs and pairs[some], seq_len):
            ids.append(np.array(row, np.int32))
            type_ids.append(np.array(types, np.int8))
            cut += len(row) < whole
    return ids, type_ids, cut


def rows(
    tokenizer: Any, texts: Sequence[str], pairs: Sequence[str] | None, seq_len: int
) -> Iterator[tuple[list[int], list[int], int]]:
    """Yields ids and type ids of each text or pair, cut as `encode` says, and how many tokens it had."""
    first = _encoded(tokenizer, texts)
    second = _encoded(tokenizer, pairs) if pairs is not None else [None] * len(first)
    for a, b in zip(first, second, strict=True):
        special = 2 if b is None else 2 + tokenizer.pair_separators
        both = len(a), 0 if b is None else len(b)
        size_a, size_b = shares(*both, seq_len - special)
        ids, type_ids = tokenizer.join(a[:size_a], None if b is None else b[:size_b])
        yield ids, type_ids, sum(both) + special


def _encoded(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    """Returns the ids of texts; one that is there often, as a passage with its answers, is split once."""
    numbers = {text: n for n, text in enumerate(dict.fromkeys(texts))}
    ids = tokenizer.encode_batch(list(numbers))
    return [ids[numbers[text]] for text in texts]


def shares(first: int, second: int, room: int) -> tuple[int, int]:
    """Returns how many tokens each text of a pair keeps, the longer losing its own first.

    Where both are longer than half of the room, each gets half, and an odd token goes to the longer (to
    the second, where they are of one length).
    """
    if first + second <= room:
        return first, second
    half = room // 2
    if min(first, second) <= half:
        return (first, room - first) if first <= second else (room - second, second)
    return (half, room - half) if first <= second else (room - half, half)


def _narrow(values: np.ndarray) -> np.ndarray:
    """Returns float32 for floats and int32 for all else, as batches have it."""
    return values.astype(np.float32 if np.issubdtype(values.dtype, np.floating) else np.int32)
