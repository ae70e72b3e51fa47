"""Sentence-order prediction (ALBERT, Lan et al. 2019, section 3.1): were A and B swapped?"""

from __future__ import annotations

from bert_jax.objectives.nsp import NextSentence


class SentenceOrder(NextSentence):
    """Tells two consecutive segments in order (label 0) from the same two swapped (label 1).

    Head and loss are those of next-sentence prediction; the pipeline makes other pairs.
    """

    name = "sop"
    baseline = "always_in_order_accuracy"
