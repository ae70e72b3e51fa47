"""Precision, recall and F1 of entities, through seqeval, which counts as conlleval does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

from bert_jax.tasks import schemes

_KINDS = ("precision", "recall", "f1")


def of_entities(gold: Sequence[list[str]], said: Sequence[list[str]]) -> dict[str, float]:
    """Returns the scores of guessed tags; what has nothing to divide by is 0.

    An entity is right where its type, first and last word are. Tags that break their scheme are counted as
    conlleval does: an I- that goes on from no entity of its type begins one (seqeval's default mode; its
    strict one would leave such entities out).

    Args:
      gold, said: tags of the same sentences, in any one of the schemes.

    Returns:
      `precision`, `recall` and `f1` over all entities (micro); `macro_*`, their means over the types that
      occur on either side; and of each of these types `precision_<type>` and so on.
    """
    types = sorted({entity.type for tags in (*gold, *said) for entity in schemes.entities(tags)})
    if not types:
        return {f"{average}{kind}": 0.0 for average in ("", "macro_") for kind in _KINDS}

    def of(average: str | None) -> tuple[np.ndarray, ...]:
        return precision_recall_fscore_support(list(gold), list(said), average=average, zero_division=0)[:3]

    found = {kind: float(x) for kind, x in zip(_KINDS, of("micro"), strict=True)}
    each = of(None)
    found |= {f"macro_{kind}": float(np.mean(x)) for kind, x in zip(_KINDS, each, strict=True)}
    for number, type_ in enumerate(types):
        found |= {f"{kind}_{type_}": float(x[number]) for kind, x in zip(_KINDS, each, strict=True)}
    return found
