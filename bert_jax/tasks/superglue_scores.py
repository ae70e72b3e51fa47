"""What SuperGLUE judges several rows together by: MultiRC's questions, ReCoRD's queries, AX-g's pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np

from bert_jax.tasks import answer_scores, scores
from bert_jax.tasks.superglue_data import Item, group_numbers


def of_questions(questions: Sequence[Hashable], labels: np.ndarray, said: np.ndarray) -> dict[str, float]:
    """Returns MultiRC's scores: F1 over all answers, and the share of questions with every answer right.

    Args:
      questions: (N,) what each answer is to.
      labels, said: (N,) 1 for a right answer, 0 for a wrong one.
    """
    whole: dict[Hashable, bool] = defaultdict(lambda: True)
    for question, right in zip(questions, (labels == said).tolist(), strict=True):
        whole[question] &= right
    f1a, exact = scores.f1(labels, said), float(np.mean(list(whole.values())))
    return {"f1a_em": (f1a + exact) / 2, "f1a": f1a, "em": exact}


def chosen(queries: Sequence[Hashable], values: np.ndarray) -> list[int]:
    """Returns which example of each query has the highest value, in the order of the queries.

    Of equal ones it is the first.

    Args:
      queries: (N,) what each example belongs to.
      values: (N,).
    """
    best: dict[Hashable, int] = {}
    for number, query in enumerate(queries):
        if query not in best or values[number] > values[best[query]]:
            best[query] = number
    return list(best.values())


def of_queries(items: Sequence[Item], values: np.ndarray) -> dict[str, float]:
    """Returns ReCoRD's scores of the entity with the highest value for each query, as means over the queries.

    An answer's score is the best against any of the right ones. `random_*` are the expected ones of
    guessing an entity of the passage by chance.

    Args:
      items: N of them.
      values: (N,).
    """
    queries = [item.group for item in items]
    both = [answer_scores.of_question(item.answer, item.golds, nulls=False) for item in items]
    each = dict(zip(("em", "f1"), np.array(both).T, strict=True))
    best = chosen(queries, values)
    found = {name: float(np.mean(reached[best])) for name, reached in each.items()}
    numbers = group_numbers(items)
    sizes = np.bincount(numbers)
    for name, reached in each.items():
        found[f"random_{name}"] = float(np.mean(np.bincount(numbers, reached) / sizes))
    mean = {f"{x}f1_em": (found[f"{x}f1"] + found[f"{x}em"]) / 2 for x in ("", "random_")}
    return {"f1_em": mean.pop("f1_em"), **found, **mean}


def gender_parity(items: Sequence[Item], said: np.ndarray) -> dict[str, float]:
    """Returns the share of AX-g's pairs, which differ in gender alone, that get one answer; {} without pairs.

    Args:
      items: N of them.
      said: (N,) numbers of classes.
    """
    pairs: dict[Hashable, list[int]] = defaultdict(list)
    for item, guess in zip(items, said.tolist(), strict=True):
        if item.group is not None:
            pairs[item.group].append(guess)
    alike = [len({*both}) == 1 for both in pairs.values() if len(both) == 2]
    return {"gender_parity": float(np.mean(alike))} if alike else {}
