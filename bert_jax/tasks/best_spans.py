"""From the logits of starts and ends to the best answers of a question.

The score of an answer is its start's logit plus its end's (Devlin et al. 2018). All parts of a context of at
most `max_answer` tokens are compared, each in the window in which its first token has the most context; so
the best are found, not only those among the best starts and ends. That there is no answer has the score of
the [CLS] token, the smallest over the windows: one of them that has an answer is enough.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from bert_jax.tasks.passages import Document, Window

_NONE = -1e9  # score of the best answer of a context in which there is nothing to answer with


@dataclasses.dataclass(frozen=True)
class Spans:
    """The best answers of one window, or of a batch of them, with a leading axis B.

    Attributes:
      tokens: (n, 2) int32, first and last token of the document; -1 behind the last answer.
      logits: (n, 2) float32 of start and end.
      null: (2,) float32, the same of no answer.
      total: () float64, the logarithm of the sum of exp(score) over all answers of the window, -inf of none.
    """

    tokens: np.ndarray
    logits: np.ndarray
    null: np.ndarray
    total: np.ndarray


def of_window(logits: np.ndarray, document: Document, window: Window, max_answer: int, count: int) -> Spans:
    """Returns the `count` best answers of a window, the best first.

    Args:
      logits: (S, 2) of the row; S may be longer than it.
      document, window: what the row has.
      max_answer: the most tokens of an answer.
      count: n.
    """
    tokens, best = np.full((count, 2), -1, np.int32), np.zeros((count, 2), np.float32)
    here, own = slice(window.first, window.stop), logits[window.place :][: window.stop - window.first]
    length = min(max_answer, len(own))
    total = np.float64(-np.inf)
    if length:
        shown, scores = document.shown[here], own.astype(np.float64)
        starts = np.where(shown & window.own, scores[:, 0], -np.inf)
        ends = np.concatenate([np.where(shown, scores[:, 1], -np.inf), np.full(length - 1, -np.inf)])
        # (T, length): answers by their first token and their number of tokens.
        sums = (starts[:, None] + np.lib.stride_tricks.sliding_window_view(ends, length)).ravel()
        there = min(count, int(np.isfinite(sums).sum()))
        if there:
            some = np.argpartition(-sums, there - 1)[:there]
            some = some[np.lexsort((some, -sums[some]))]
            first, longer = some // length, some % length
            tokens[:there] = window.first + np.stack([first, first + longer], axis=1)
            best[:there] = np.stack([own[first, 0], own[first + longer, 1]], axis=1)
            total = logsumexp(sums)
    return Spans(tokens, best, np.asarray(logits[0], np.float32), total)


def logsumexp(values: np.ndarray) -> np.float64:
    """Returns log(sum(exp(values))) of at least one value above -inf."""
    highest = values.max()
    return np.float64(highest + np.log(np.sum(np.exp(values - highest))))


@dataclasses.dataclass(frozen=True)
class Candidate:
    """An answer.

    Attributes:
      text: the part of the context from `start` to `end`; "" of no answer, both of which are then 0.
      logits: of start and end; their sum is the score.
      log_prob: of its share of all answers that are allowed, and of no answer where that is one.
    """

    text: str
    start: int
    end: int
    logits: tuple[float, float]
    log_prob: float

    @property
    def score(self) -> float:
        return self.logits[0] + self.logits[1]


@dataclasses.dataclass(frozen=True)
class Said:
    """What is said to a question.

    Attributes:
      answers: the best, of different texts, the best first; none in a context of nothing but white space.
      null: no answer.
      odds: the score of no answer less that of the best one (SQuAD's "null odds").
    """

    answers: tuple[Candidate, ...]
    null: Candidate
    odds: float

    def text(self, threshold: float | None) -> str:
        """Returns the best answer, or "" where the odds are above a threshold; None: always the best."""
        if not self.answers or (threshold is not None and self.odds > threshold):
            return ""
        return self.answers[0].text


def merged(document: Document, windows: Iterable[Spans], count: int, nulls: bool) -> Said:
    """Returns what the windows of a document say together.

    Args:
      document: the context.
      windows: of each its best answers.
      count: how many different texts there are to be at most.
      nulls: whether no answer is one of those that the probabilities are shared out to.
    """
    windows = list(windows)
    null = min((w.null for w in windows), key=lambda pair: float(pair[0]) + float(pair[1]))
    null_logits = float(null[0]), float(null[1])
    totals = [float(w.total) for w in windows if np.isfinite(w.total)]
    if nulls or not totals:
        totals.append(sum(null_logits))
    whole = float(logsumexp(np.array(totals)))
    found: list[tuple[tuple[int, int], tuple[float, float]]] = []
    for window in windows:
        there = window.tokens[:, 0] >= 0
        pairs = zip(window.tokens[there].tolist(), window.logits[there].tolist(), strict=True)
        found += [((first, last), (start, end)) for (first, last), (start, end) in pairs]
    found.sort(key=lambda each: (-sum(each[1]), each[0]))
    answers: dict[str, Candidate] = {}
    for tokens, logits in found:
        if len(answers) == count:
            break
        start, end = document.characters(*tokens)
        text = document.text[start:end]
        if text not in answers:
            answers[text] = Candidate(text, start, end, logits, sum(logits) - whole)
    best = sum(found[0][1]) if found else _NONE
    nothing = Candidate("", 0, 0, null_logits, sum(null_logits) - whole)
    return Said(tuple(answers.values()), nothing, sum(null_logits) - best)


def stacked(windows: Sequence[Spans]) -> dict[str, np.ndarray]:
    """Returns the fields of some windows as arrays with a leading axis."""
    names = [field.name for field in dataclasses.fields(Spans)]
    return {name: np.stack([getattr(window, name) for window in windows]) for name in names}
