"""Own data: texts, pairs, scored texts and choices, from tables whose columns the config names."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from absl import logging
from ml_collections import ConfigDict

from bert_jax.tasks import Task, TaskDataError, own_data, scores
from bert_jax.tasks.own_data import Columns
from bert_jax.tasks.sequence import SequenceTask, Split

_SOME = 10  # examples: from so many on, labels that are all different are no classes

Item = TypeVar("Item")


class Own(SequenceTask):
    """Classification (of texts or pairs), regression or choice on the user's own data.

    Classifications are judged by accuracy; macro-averaged F1, and with two classes Matthews correlation,
    stand beside it. Choices are judged by accuracy, regressions by Pearson correlation.
    """

    def __init__(
        self, config: ConfigDict, tokenizer: Any, names: Sequence[str], splits: Mapping[str, Split]
    ) -> None:
        """Tokenises the splits.

        Args:
          config: the whole config.
          tokenizer: of `bert_jax.data.tokenizer`.
          names: of the classes or choices; () of a regression.
          splits: "train" and "eval".
        """
        columns = Columns.of(config)
        self.metric = "accuracy" if names else "pearson"
        super().__init__(
            config, tokenizer, names=names, train=splits["train"], evals={"eval": splits["eval"]},
            choices=max(1, len(columns.choices)), facts={"columns": columns.facts()},
        )  # fmt: skip

    def metrics(self, name: str, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Returns the metrics, the shares of predicted classes or choices, and the baselines."""
        if not self.names:
            return self.value_scores(name, outputs["logits"])
        labels, guesses, found = self.class_scores(name, outputs["logits"])
        if self.facts["kind"] == "classification":
            found["macro_f1"] = scores.macro_f1(labels, guesses, len(self.names))
            if len(self.names) == 2:
                found["mcc"] = scores.matthews(labels, guesses)
        return found


def make(config: ConfigDict, tokenizer: Any) -> Task:
    """Reads the user's data.

    `config.data.path` is the training file (`.csv`, `.tsv`, `.jsonl`, each also with `.gz`), a folder with
    one that is called train and one called dev, eval, valid or validation, or a TFDS name. The evaluation is
    `data.eval_path` (of TFDS: the name of a split) where it is set, else what the folder or dataset has,
    else `data.eval_fraction` of the training data, which is then not trained on (`hold_out`).

    Raises:
      ValueError: a file, column, text or label is not as it must be; the message names file and line.
    """
    columns = Columns.of(config)
    train, held_out = own_data.read(config, columns)
    names: tuple[str, ...] = ()
    if config.task.name != "regression":
        names = columns.names or _names([own_data.label(row, columns) for row in train])
    data = {"train": own_data.split(train, columns, names)}
    if held_out is not None:
        data["eval"] = own_data.split(held_out, columns, names)
    else:
        fraction = config.data.eval_fraction
        data = hold_out(data["train"], fraction, max(1, len(columns.choices)))
        how = "chosen by their texts, the same under any seed"
        _say_held_out(len(train), "examples", len(data["eval"].labels), fraction, how)
    return Own(config, tokenizer, names, data)


def _names(labels: Sequence[str]) -> tuple[str, ...]:
    """Returns the classes that occur, sorted: whole numbers by their value, all else as text."""
    found = {*labels}
    if len(found) == len(labels) >= _SOME:
        raise TaskDataError(
            f"each of the {len(labels)} training examples has a label of its own, such as {labels[0]!r}: a "
            'class has several; numbers are for task.name = "regression" (configs/text.py:regression)'
        )
    if len(found) < 2:
        raise TaskDataError(
            f"every training example has the label {next(iter(found))!r}: a classification needs two"
        )
    whole = all(name.removeprefix("-").isdecimal() for name in found)
    return tuple(sorted(found, key=lambda name: (int(name), name) if whole else name))


def hold_out(whole: Split, fraction: float, choices: int = 1) -> dict[str, Split]:
    """Returns a split in two, "train" and "eval", the same for the same texts, whatever their order.

    Of the examples of each class (of all, where labels are numbers) `fraction`, rounded, are held out: those
    whose texts have the smallest hashes. Examples of the same text are on one side together, so that
    nothing which is judged was seen. A class of two texts or more has some on both sides, unless there are
    so many classes that more than ten examples, and a fifth, would be held out: then `fraction` of all are.

    Args:
      whole: all examples.
      fraction: share that is held out.
      choices: C.

    Raises:
      TaskDataError: nothing would be held out.
    """
    labels = np.asarray(whole.labels)
    groups: dict[bytes, list[int]] = defaultdict(list)
    for number in range(len(labels)):
        own = slice(number * choices, (number + 1) * choices)
        texts = [*whole.texts[own], *(whole.pairs[own] if whole.pairs is not None else ())]
        key = b"".join(len(text).to_bytes(8, "big") + text.encode("utf-8", "replace") for text in texts)
        groups[hashlib.blake2b(key, digest_size=16).digest()].append(number)
    strata: dict[float, list[list[int]]] = defaultdict(list)
    for digest in sorted(groups):
        first = labels[groups[digest][0]]
        strata[float(first) if np.issubdtype(labels.dtype, np.integer) else 0.0].append(groups[digest])

    def wanted_of(stratum: list[list[int]]) -> int:
        wanted = round(fraction * sum(len(group) for group in stratum))
        return max(1, wanted) if fraction and len(stratum) > 1 else wanted

    if sum(map(wanted_of, strata.values())) > max(_SOME, max(fraction, 0.2) * len(labels)):
        logging.warning(
            "%d classes in %d examples are too many for each to have some held out: it is done over all",
            len(strata), len(labels),
        )  # fmt: skip
        strata = {0.0: [groups[digest] for digest in sorted(groups)]}
    held: list[int] = []
    for stratum in strata.values():
        wanted = wanted_of(stratum)
        taken: list[int] = []
        for group in stratum[:-1]:
            if len(taken) >= wanted:
                break
            taken += group
        held += taken
    if not held:
        raise TaskDataError(
            f"data.eval_fraction = {fraction:g} of {len(labels)} examples holds none out: set a larger one, "
            "or data.eval_path"
        )
    left = sorted({*range(len(labels))} - {*held})
    return {"train": _part(whole, left, choices), "eval": _part(whole, sorted(held), choices)}


def hold_out_by(
    texts: Sequence[str],
    items: Sequence[Item],
    fraction: float,
    *,
    what: str,
    how: str,
    labels: np.ndarray | None = None,
) -> tuple[list[Item], list[Item]]:
    """Returns the items to train on and those held out, chosen by a text of each (`hold_out`), and says so.

    Args:
      texts: of each item that by which it is chosen; items of one text are on one side.
      items: what is held out.
      fraction: share that is held out.
      what: what the reader calls them.
      how: what the reader is told of the choice.
      labels: their classes, (N,) int, where each is to be on both sides.

    Raises:
      TaskDataError: nothing would be held out.
    """
    if labels is None:
        labels = np.zeros(len(items), np.float32)
    parts = hold_out(Split(texts, None, labels), fraction)
    train, held = ([items[int(n)] for n in parts[name].index or ()] for name in ("train", "eval"))
    _say_held_out(len(items), what, len(held), fraction, how)
    return train, held


def _say_held_out(count: int, what: str, held: int, fraction: float, how: str) -> None:
    logging.info(
        "no evaluation data is named: of %d %s %d are held out for it (data.eval_fraction = %g), %s",
        count, what, held, fraction, how,
    )  # fmt: skip


def _part(whole: Split, numbers: Sequence[int], choices: int) -> Split:
    """Returns some of the examples; they are called by their numbers in the whole."""
    rows = [n * choices + i for n in numbers for i in range(choices)]
    pairs = None if whole.pairs is None else [whole.pairs[i] for i in rows]
    labels = np.asarray(whole.labels)[list(numbers)]
    index = [str(n) for n in numbers]
    return Split([whole.texts[i] for i in rows], pairs, labels, index)
