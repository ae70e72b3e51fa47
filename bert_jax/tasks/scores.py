"""Metrics of labelled texts. What is undefined by its formula is 0 and said, never NaN."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from absl import logging
from scipy import stats
from sklearn import metrics


def of_classes(guesses: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Returns the share of guesses of each class, `predicted_share_<name>`; says it where one has all.

    Args:
      guesses: (N,) int.
      names: of the classes.
    """
    counts = np.bincount(guesses, minlength=len(names))
    if counts.max() == len(guesses):
        logging.warning(
            "all %d examples are predicted as %s: Matthews correlation is 0 by definition, and accuracy is "
            "that class's share",
            len(guesses), names[int(counts.argmax())],
        )  # fmt: skip
    shares = counts / len(guesses)
    return {f"predicted_share_{name}": float(share) for name, share in zip(names, shares, strict=True)}


def accuracy(labels: np.ndarray, guesses: np.ndarray) -> float:
    """Returns the share of (N,) guesses that are right."""
    return float(np.mean(labels == guesses))


def matthews(labels: np.ndarray, guesses: np.ndarray) -> float:
    """Returns Matthews correlation, 0 where either side has one class only (Matthews 1975; Gorodkin 2004)."""
    if len(np.unique(guesses)) == 1 or len(np.unique(labels)) == 1:
        return 0.0
    return float(metrics.matthews_corrcoef(labels, guesses))


def f1(labels: np.ndarray, guesses: np.ndarray) -> float:
    """Returns F1 of class 1 against class 0; 0 where nothing is right."""
    return float(metrics.f1_score(labels, guesses, zero_division=0))


def macro_f1(labels: np.ndarray, guesses: np.ndarray, classes: int) -> float:
    """Returns the mean over the classes of each one's F1, classes that occur on neither side left out."""
    occurring = np.union1d(labels, guesses)
    each = metrics.f1_score(labels, guesses, labels=np.arange(classes), average=None, zero_division=0)
    return float(np.mean(each[occurring]))


def correlations(values: np.ndarray, guesses: np.ndarray) -> dict[str, float]:
    """Returns `pearson` and `spearman` of (N,) guesses, 0 where either side is constant or N is 1."""
    for side, which in ((guesses, "predictions"), (values, "gold scores")):
        if len(side) < 2 or np.ptp(side) == 0:
            logging.warning("all %d %s are alike: their correlation is 0 by definition", len(side), which)
            return {"pearson": 0.0, "spearman": 0.0}
    values, guesses = np.asarray(values, np.float64), np.asarray(guesses, np.float64)
    return {
        "pearson": float(stats.pearsonr(values, guesses).statistic),
        "spearman": float(stats.spearmanr(values, guesses).statistic),
    }
