"""Relations between two entities of a text, which marks put round them point out (Soares et al. 2019)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging
from etils import epath
from ml_collections import ConfigDict

from bert_jax import workdir
from bert_jax.data.encoding import Tokenizer
from bert_jax.objectives.classification import Classification
from bert_jax.tasks import Task, TaskDataError, marks, own, own_data, scores, tables
from bert_jax.tasks.features import Examples, evenly_spread
from bert_jax.tasks.marks import SPANS, Marked, Marker
from bert_jax.tasks.own_data import Columns


class Relation(Task):
    """The relation of two entities, judged by F1 over all relations but the one that says there is none.

    It is micro-averaged, as TACRED's scorer has it: precision is over the examples in which a relation is
    guessed, recall over those in which there is one.

    Attributes:
      names: of the classes.
    """

    def __init__(
        self,
        config: ConfigDict,
        tokenizer: Tokenizer,
        names: Sequence[str],
        splits: Mapping[str, tuple[Sequence[Marked], np.ndarray]],
    ) -> None:
        """Tokenises the splits.

        Args:
          config: the whole config.
          tokenizer: of `bert_jax.data.tokenizer`.
          names: of the classes.
          splits: "train" and "eval": texts, and (N,) numbers of classes.

        Raises:
          ValueError: the vocabulary does not know the marks.
        """
        self.names = self.labels = tuple(names)
        self.metric = "f1"
        task, size = config.task, config.train.batch_size
        marker = Marker(tokenizer, task.markers, config.data.seq_len)
        self._none = self.names.index(task.no_relation) if task.no_relation in self.names else -1
        if self._none < 0:
            logging.info(
                "no class is called task.no_relation = %r: F1 is over all %d classes",
                task.no_relation, len(names),
            )  # fmt: skip
        texts, labels = splits["eval"]
        chosen = evenly_spread(len(texts), config.train.eval_rows)
        self._gold, self._texts = np.asarray(labels)[chosen], [texts[i] for i in chosen]
        self.train = _examples(*splits["train"], marker, tokenizer, config, size, train=True)
        size = config.train.eval_batch_size or size
        self.evals = {
            "eval": _examples(self._texts, self._gold, marker, tokenizer, config, size, train=False)
        }
        self.majority = int(np.argmax(np.bincount(splits["train"][1], minlength=len(names))))
        self.heads = {"labels": len(names), "marked": 0 if task.head == "pooled" else 2}
        self.objective = Classification()
        self.facts = {
            "kind": "relation", "seq_len": config.data.seq_len, "markers": list(task.markers),
            "columns": {"text": task.text or "text"},
        }  # fmt: skip

    def metrics(self, name: str, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Returns the scores, and those of always guessing the training data's most frequent class."""
        gold, said = self._gold, np.argmax(outputs["logits"], axis=-1)
        relations = [i for i in range(len(self.names)) if i != self._none]
        return {
            **_micro(gold, said, relations),
            "macro_f1": float(np.mean([_micro(gold, said, [i])["f1"] for i in relations])),
            "accuracy": scores.accuracy(gold, said),
            **scores.of_classes(said, self.names),
            "majority_class_accuracy": float(np.mean(gold == self.majority)),
            "majority_class_f1": _micro(gold, np.full_like(gold, self.majority), relations)["f1"],
        }

    def write_predictions(self, folder: epath.Path, name: str, outputs: Mapping[str, np.ndarray]) -> None:
        """Writes a JSON line an example: its text and entities, the guess, and what is right."""
        lines = []
        said = np.argmax(outputs["logits"], axis=-1)
        for marked, guess, gold in zip(self._texts, said.tolist(), self._gold.tolist(), strict=True):
            line: dict[str, Any] = {"text": marked.text}
            line |= {name: list(span) for name, span in zip(SPANS, marked.spans, strict=True)}
            line |= {"label": self.names[guess], "gold": self.names[gold]}
            lines.append(json.dumps(line, ensure_ascii=False) + "\n")
        workdir.write(folder / f"{name}.jsonl", "".join(lines))


def _micro(gold: np.ndarray, said: np.ndarray, relations: Sequence[int]) -> dict[str, float]:
    right = int(np.sum((gold == said) & np.isin(gold, relations)))
    guessed, there = int(np.sum(np.isin(said, relations))), int(np.sum(np.isin(gold, relations)))
    return {
        "f1": 2 * right / max(guessed + there, 1),
        "precision": right / max(guessed, 1),
        "recall": right / max(there, 1),
    }


def _examples(
    texts: Sequence[Marked], labels: np.ndarray, marker: Marker, tokenizer: Tokenizer, config: ConfigDict,
    batch_size: int, train: bool,
) -> Examples:  # fmt: skip
    rows = [marker.row(text) for text in texts]
    cut = sum(whole > len(ids) for ids, _, whole in rows)
    if cut:
        logging.warning(
            "%d of %d %s texts are cut to data.seq_len = %d tokens, those nearest to their entities",
            cut, len(rows), "training" if train else "evaluation", config.data.seq_len,
        )  # fmt: skip
    arrays = {"labels": labels, "marked_positions": np.array([where for _, where, _ in rows])}
    return Examples(
        [ids for ids, *_ in rows], None, tokenizer, config, batch_size=batch_size, train=train, arrays=arrays
    )


def make(config: ConfigDict, tokenizer: Tokenizer) -> Task:
    """Reads texts with two entities and their relation.

    Files are found as those of own data are (`own.make`). Of JSON lines `task.text` (else `text`, or
    `tokens`) is a text or a list of words, and `head` and `tail` are its entities (`marks.of_row`); a text
    without these, and that of a CSV or TSV, has its marks inside (`marks.of_inline`). `task.label` (else
    `label`) is the relation.

    Raises:
      ValueError: a file, text, entity or label is not as it must be; the message names file and line.
    """
    columns = dataclasses.replace(Columns.of(config), label=config.task.label or "label")
    rows, held_out = own_data.read(config, columns)
    names = columns.names or tuple(sorted({own_data.label(row, columns) for row in rows}))
    if len({*names}) < 2:
        raise TaskDataError(f"every training example has the relation {names[0]!r}: there must be two")
    numbers = {name: i for i, name in enumerate(names)}

    def split(rows: Sequence[tables.Row]) -> tuple[list[Marked], np.ndarray]:
        texts, labels = [], []
        for row in rows:
            said = own_data.label(row, columns)
            if said not in numbers:
                raise TaskDataError(
                    f"{row.where}: the {columns.label} is {said!r}: it must be one of "
                    f"{', '.join(map(repr, names))}"
                )
            of = columns.text or ("text" if "text" in row.values else "tokens")
            if of not in row.values:
                raise TaskDataError(f"{row.where}: there is neither a text nor tokens: name it by task.text")
            texts.append(marks.of_row(row, of))
            labels.append(numbers[said])
        return texts, np.array(labels, np.int32)

    train = split(rows)
    if held_out is not None:
        return Relation(config, tokenizer, names, {"train": train, "eval": split(held_out)})
    chosen = own.hold_out_by(
        [json.dumps([marked.text, marked.spans]) for marked in train[0]],
        range(len(train[0])),
        config.data.eval_fraction,
        what="examples",
        how="chosen by their texts",
        labels=train[1],
    )
    splits = {
        name: ([train[0][i] for i in some], train[1][some])
        for name, some in zip(("train", "eval"), chosen, strict=True)
    }
    return Relation(config, tokenizer, names, splits)
