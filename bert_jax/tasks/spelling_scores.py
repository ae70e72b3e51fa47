"""Scores of corrected texts, by sentences and by tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def of_texts(
    read: Sequence[np.ndarray], said: Sequence[np.ndarray], right: Sequence[np.ndarray]
) -> dict[str, float]:
    """Returns detection and correction scores, and those of leaving everything as it is.

    A token is detected where the answer has another than was read. By sentences, as Chinese spelling
    correction is judged: precision is over the texts in which anything is changed, recall over those in which
    anything is wrong; a text is right in detection where exactly its wrong tokens are changed, in correction
    where they also became what they should be; accuracy is over all texts. By tokens: precision over the
    changed ones, recall over the wrong ones. Precision of no change and recall of no error are 0.

    Args:
      read, said, right: of each text its tokens, as many in each: as read, as answered, as they should be.
    """
    detected = [np.array_equal(a != b, a != c) for a, b, c in zip(read, said, right, strict=True)]
    corrected = [np.array_equal(b, c) for b, c in zip(said, right, strict=True)]
    changes = [bool(np.any(a != b)) for a, b in zip(read, said, strict=True)]
    errors = [bool(np.any(a != c)) for a, c in zip(read, right, strict=True)]
    found = {
        **_scores("sentence_detection", detected, changes, errors),
        "sentence_detection_accuracy": float(np.mean(detected)),
        **_scores("sentence_correction", corrected, changes, errors),
        "sentence_correction_accuracy": float(np.mean(corrected)),
    }
    a, b, c = (np.concatenate(texts) for texts in (read, said, right))
    return {
        **found,
        **_scores("token_detection", a != c, a != b, a != c),
        **_scores("token_correction", b == c, a != b, a != c),
        "token_accuracy": float(np.mean(b == c)),
        "unchanged_sentence_accuracy": 1 - float(np.mean(errors)),
        "unchanged_token_accuracy": float(np.mean(a == c)),
        "unchanged_f1": 0.0,
    }


def _scores(
    name: str, right: Sequence[bool], changed: Sequence[bool], wrong: Sequence[bool]
) -> dict[str, float]:
    """Returns precision, recall and F1 of what is changed and was wrong and is right."""
    hits = int(np.sum(np.asarray(right) & np.asarray(changed) & np.asarray(wrong)))
    said, there = int(np.sum(changed)), int(np.sum(wrong))
    return {
        f"{name}_precision": hits / max(said, 1),
        f"{name}_recall": hits / max(there, 1),
        f"{name}_f1": 2 * hits / max(said + there, 1),
    }
