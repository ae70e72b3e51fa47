"""Examples drawn from several texts by weight, in an order that is a function of (seed, number).

The numbers of a run's examples are cut into blocks of 1,024. Each block holds of every text its share of
1,024, rounded down or up; which of the two is fixed for 1,024 blocks in turn, spread evenly over them, so
that together these hold exactly the share. Within a block the texts are mixed by a permutation of
(seed, block). So which text example g is of, and how many of that text came before it, is found at once,
at any g; and that count is the example's number in its own text, which goes through its epochs as if it
were alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from bert_jax.data.ordering import order
from bert_jax.data.pipeline import Examples, without

BLOCK = 1024  # examples
CYCLE = 1024  # blocks after which the roundings come again
_STREAM = 1 << 63  # tells this use of the seed from the texts' own orders


class Shares:
    """Which text each example of a run is of.

    Attributes:
      counts: (CYCLE, K) int64: examples of each of the K texts in the blocks of a cycle.
    """

    def __init__(self, weights: Sequence[float], seed: int) -> None:
        """Rounds the shares to whole examples of a cycle (about a million), by largest remainder.

        Args:
          weights: of the K texts, in any scale.
          seed: of the permutations, below 2**63.

        Raises:
          ValueError: a weight that is not above 0, or so small that not one example is the text's.
        """
        weight = np.array(weights, np.float64)
        if not (np.isfinite(weight).all() and (weight > 0).all()):
            raise ValueError(f"data.mixture has the weights {tuple(weights)}: each must be above 0")
        exact = weight / weight.sum() * (BLOCK * CYCLE)
        total = np.floor(exact).astype(np.int64)
        short = BLOCK * CYCLE - int(total.sum())
        total[np.argsort(total - exact, kind="stable")[:short]] += 1
        if not total.all():
            raise ValueError(
                f"data.mixture has the weights {tuple(weights)}: a text with less than a millionth of "
                "them would never be read; raise its weight or leave it out"
            )
        self._seed = seed | _STREAM
        # What is over when every block has the share rounded down: less than one a block for each text,
        # a whole number a block for all. Laid end to end and dealt out to the blocks in turn, no block gets
        # two of a text, and all get as many. Bits in reverse make the turn jump: any run of places is
        # spread evenly over the blocks.
        rest = np.cumsum(np.concatenate([[0], total % CYCLE]))
        turn = np.array([int(f"{block:010b}"[::-1], 2) for block in range(CYCLE)])
        place = np.arange(rest[-1])
        self.counts = np.repeat(total[None] // CYCLE, CYCLE, axis=0)
        self.counts[turn[place % CYCLE], np.searchsorted(rest, place, side="right") - 1] += 1
        self._before = np.concatenate([np.zeros_like(total)[None], np.cumsum(self.counts, axis=0)])
        self._ends = np.cumsum(self.counts, axis=1)

    def of(self, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the text of each example, and its number within that text: (R,) int64 both.

        Args:
          g: (R,) int: numbers of examples since the run's start.
        """
        block, place = order(g, BLOCK, self._seed)
        cycle, block = np.divmod(block, CYCLE)
        text = (self._ends[block] <= place[:, None]).sum(axis=1)
        within = place - (self._ends[block, text] - self.counts[block, text])
        return text, cycle * self._before[-1][text] + self._before[block, text] + within


class Mixture:
    """Several texts as one: the same interface as `pipeline.Examples`.

    In training examples come by weight, without end, and an epoch is as many of them as the texts have
    together. In evaluation the texts come one after the other, each example once.

    Attributes:
      num_examples: examples of an epoch, or of the evaluation.
      batch_size: B.
    """

    def __init__(
        self,
        parts: Sequence[Examples],
        weights: Sequence[float],
        *,
        seed: int,
        batch_size: int,
        train: bool,
        pad_id: int,
        eval_rows: int = 0,
        phase: int = 0,
    ) -> None:
        """Mixes texts.

        Args:
          parts: the K texts, made with the same config, tokenizer, objectives, `train`, `seq_len` and
            `phase`, and each with its own number as `part`.
          weights: (K,) shares of the examples, in any scale; not read in evaluation.
          seed: config.seed.
          batch_size: B, rows of a global batch; that of the parts is not read.
          train: as that of the parts.
          pad_id: of the tokenizer.
          eval_rows: most examples of an evaluation, evenly spread over all texts; 0 is all. The parts'
            own limit is not read.
          phase: of `train.phases`: each is mixed in an order of its own.

        Raises:
          ValueError: no part, not a weight for each, or one that `Shares` refuses.
        """
        if not parts or len(weights) != len(parts):
            raise ValueError(f"data.mixture has {len(parts)} texts and {len(weights)} weights: one for each")
        self._parts, self._train, self._pad_id, self.batch_size = list(parts), train, pad_id, batch_size
        self._shares = Shares(weights, seed + (phase << 47)) if train else None
        self._weights = np.array(weights, np.float64)
        self._first = np.cumsum([0, *(part.total for part in parts)])
        total = int(self._first[-1])
        self.num_examples = min(total, eval_rows) if eval_rows and not train else total

    @property
    def fill_share(self) -> float:
        """Share of the tokens that is not padding, in training as the texts are mixed; NaN for pairs."""
        share = self._weights if self._train else np.diff(self._first)
        return (
            math.fsum(w * part.fill_share for w, part in zip(share, self._parts, strict=True)) / share.sum()
        )

    def num_eval_batches(self) -> int:
        """Returns the batches of an evaluation."""
        return -(-self.num_examples // self.batch_size)

    def batch(self, step: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the given rows of the batch of a step, whatever was asked for before.

        Each part makes its own rows, masks included, which depend on nothing but the part and the
        example's number in it.

        Args:
          step: number of the batch, from 0.
          rows: (R,) int: row numbers in the global batch, below B.
        """
        g = step * self.batch_size + np.asarray(rows, np.int64)
        if self._train:
            text, number = self._shares.of(g)
            return self._collect(text, number)
        valid = g < self.num_examples
        index = np.where(valid, g, 0) * int(self._first[-1]) // self.num_examples
        text = np.searchsorted(self._first, index, side="right") - 1
        batch = self._collect(text, index - self._first[text])
        return without(batch, ~valid, self._pad_id)

    def _collect(self, text: np.ndarray, number: np.ndarray) -> dict[str, np.ndarray]:
        batch: dict[str, np.ndarray] = {}
        for name in np.unique(text).tolist():
            here, part = np.flatnonzero(text == name), self._parts[name]
            numbers = number[here]
            made = part.numbered(numbers) if self._train else part.take(np.zeros_like(numbers), numbers)
            for key, value in made.items():
                whole = batch.setdefault(key, np.empty((len(text), *value.shape[1:]), value.dtype))
                whole[here] = value
        return batch
