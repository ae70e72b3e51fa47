"""The weight of a language model beside a first pass, and what the choice is worth.

A hypothesis has the score (1 - w) * first pass + w * log p, where log p may be divided by its number of
tokens. The weight is that of the grid 0, .05, .., 1 which is best on a development set; of several the
smallest, which keeps nearest to the first pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import jiwer
import numpy as np
from sacrebleu.metrics import BLEU

from bert_jax.scoring.nbest import NBest, to_json
from bert_jax.scoring.scorer import Scorer

GRID = tuple(round(0.05 * i, 2) for i in range(21))


class Metric(Protocol):
    """A corpus metric that is a function of sums over its sentences.

    Attributes:
      name: as the summary has it.
      sign: 1 where higher is better, else -1.
    """

    name: str
    sign: int

    def counts(self, reference: str, text: str) -> np.ndarray:
        """Returns a sentence's counts, (C,)."""

    def value(self, counts: np.ndarray) -> float:
        """Returns the corpus's value, from the (C,) sum of its counts."""

    def of_sentence(self, counts: np.ndarray) -> float:
        """Returns by what an oracle ranks a sentence, from its (C,) counts."""


class WordErrorRate:
    """WER in per cent: wrong, missing and surplus words over the references' words (jiwer).

    Words are what white space separates, case and punctuation as they stand.
    """

    name, sign = "WER", -1

    def counts(self, reference: str, text: str) -> np.ndarray:
        """Returns errors and the reference's words."""
        found = jiwer.process_words(reference, text)
        errors = found.substitutions + found.deletions + found.insertions
        return np.array([errors, found.hits + found.substitutions + found.deletions], np.int64)

    def value(self, counts: np.ndarray) -> float:
        """Returns the rate; of references without words, 100 for each word that is too many."""
        return 100.0 * float(counts[0]) / max(1, int(counts[1]))

    def of_sentence(self, counts: np.ndarray) -> float:
        """Returns the errors: with the fewest in each sentence the corpus has the fewest."""
        return float(counts[0])


class Bleu:
    """Corpus BLEU of one reference (sacrebleu), its tokenizer "13a" or, for text in tokens, "none".

    An oracle takes the hypothesis with the highest sentence BLEU (effective order), which does not quite
    make the highest corpus BLEU.
    """

    name, sign = "BLEU", 1

    def __init__(self, tokenize: str = "13a") -> None:
        self._bleu = BLEU(tokenize=tokenize, force=True, effective_order=True)

    def counts(self, reference: str, text: str) -> np.ndarray:
        """Returns the right n-grams and all n-grams, n = 1..4, and the lengths of text and reference."""
        found = self._bleu.sentence_score(text, [reference])
        return np.array([*found.counts, *found.totals, found.sys_len, found.ref_len], np.int64)

    def value(self, counts: np.ndarray) -> float:
        """Returns corpus BLEU, exponentially smoothed as sacrebleu's default is."""
        return self._value(counts, effective_order=False)

    def of_sentence(self, counts: np.ndarray) -> float:
        """Returns sentence BLEU."""
        return self._value(counts, effective_order=True)

    def _value(self, counts: np.ndarray, effective_order: bool) -> float:
        right, total, lengths = counts[:4].tolist(), counts[4:8].tolist(), counts[8:].tolist()
        found = BLEU.compute_bleu(
            right, total, *lengths, smooth_method="exp", effective_order=effective_order
        )
        return float(found.score)


@dataclasses.dataclass(frozen=True)
class Lists:
    """N-best lists with the model's scores.

    Attributes:
      lists: the lists.
      log_probs: of each list's hypotheses.
      lengths: their numbers of scored tokens.
      counts: (hypotheses, C) of each list, for a metric; None where references are missing.
    """

    lists: Sequence[NBest]
    log_probs: Sequence[np.ndarray]
    lengths: Sequence[np.ndarray]
    counts: Sequence[np.ndarray] | None

    def combined(self, number: int, weight: float, by_length: bool) -> np.ndarray:
        """Returns the scores of a list's hypotheses."""
        log_probs = self.log_probs[number]
        if by_length:
            log_probs = log_probs / np.maximum(self.lengths[number], 1)
        return (1 - weight) * np.array(self.lists[number].scores) + weight * log_probs

    def chosen(self, weight: float, by_length: bool) -> list[int]:
        """Returns which hypothesis of each list has the highest score; the first of several."""
        return [int(np.argmax(self.combined(i, weight, by_length))) for i in range(len(self.lists))]

    def first_best(self) -> list[int]:
        """Returns which hypothesis of each list the first pass finds best."""
        return [some.first_best for some in self.lists]

    def oracle(self, metric: Metric) -> list[int]:
        """Returns which hypothesis of each list is best by its reference; the first of several."""
        return [
            int(np.argmax([metric.sign * metric.of_sentence(one) for one in counts]))
            for counts in self._known()
        ]

    def value(self, metric: Metric, chosen: Sequence[int]) -> float:
        """Returns the metric of one hypothesis of each list."""
        return metric.value(sum(counts[i] for counts, i in zip(self._known(), chosen, strict=True)))

    def _known(self) -> Sequence[np.ndarray]:
        if self.counts is None:
            missing = next(some.id for some in self.lists if some.reference is None)
            raise ValueError(f"list {missing} has no reference: name a file of references")
        return self.counts


def counts_of(lists: Sequence[NBest], metric: Metric) -> list[np.ndarray] | None:
    """Returns a metric's counts of all hypotheses; None where a list has no reference."""
    if any(some.reference is None for some in lists):
        return None
    return [np.stack([metric.counts(some.reference or "", text) for text in some.texts]) for some in lists]


def tune(lists: Lists, metric: Metric, by_length: bool) -> float:
    """Returns the best weight of the grid for a development set.

    Raises:
      ValueError: a list has no reference.
    """
    values = [metric.sign * lists.value(metric, lists.chosen(weight, by_length)) for weight in GRID]
    return GRID[int(np.argmax(values))]


def tune_form(lists: Lists, metric: Metric, forms: Sequence[bool]) -> tuple[dict[bool, float], bool]:
    """Returns the best weight of each form (whether log_prob is divided by its tokens), and the best form.

    Raises:
      ValueError: a list has no reference.
    """
    weights = {form: tune(lists, metric, form) for form in forms}
    worth = {form: metric.sign * lists.value(metric, lists.chosen(weights[form], form)) for form in forms}
    return weights, max(forms, key=worth.__getitem__)


def scored(lists: list[NBest], scorer: Scorer, metric: Metric) -> Lists:
    """Returns n-best lists with the model's scores; a text that comes several times is scored once."""
    texts = list(dict.fromkeys(text for some in lists for text in some.texts))
    known = {one.text: (one.log_prob, len(one.tokens)) for one in scorer.score(texts)}
    return Lists(
        lists,
        [np.array([known[text][0] for text in some.texts]) for some in lists],
        [np.array([known[text][1] for text in some.texts]) for some in lists],
        counts_of(lists, metric),
    )


def table(columns: dict[str, Lists], weights: dict[bool, float], metric: Metric, method: str) -> str:
    """Returns the lines of the summary: what each choice is worth on each of the sets.

    Args:
      columns: the sets with references, by name.
      weights: by whether log_prob is divided by its tokens.
      metric: what is said.
      method: the scorer's.
    """
    rows: dict[str, list[float]] = {
        "first pass": [lists.value(metric, lists.first_best()) for lists in columns.values()]
    }
    for by_length, weight in weights.items():
        name = f"{method}{' by length' if by_length else ''}, w = {weight:g}"
        rows[name] = [lists.value(metric, lists.chosen(weight, by_length)) for lists in columns.values()]
    rows["oracle"] = [lists.value(metric, lists.oracle(metric)) for lists in columns.values()]
    lines = [f"{metric.name:<28}" + "".join(f"{name:>9}" for name in columns)]
    lines += [f"{name:<28}" + "".join(f"{value:>9.2f}" for value in values) for name, values in rows.items()]
    sizes = ", ".join(f"{name} {len(x.lists)} lists" for name, x in columns.items())
    return "\n".join([*lines, sizes])


def values(lists: Lists, weight: float, by_length: bool) -> Iterator[dict[str, Any]]:
    """Yields what is written of each list."""
    for number, chosen in enumerate(lists.chosen(weight, by_length)):
        score = float(lists.combined(number, weight, by_length)[chosen])
        yield to_json(lists.lists[number], chosen, score, float(lists.log_probs[number][chosen]))
