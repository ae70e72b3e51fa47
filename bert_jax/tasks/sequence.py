"""What tasks with one answer a text (or pair of texts, or choice) share, wherever their data is from."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath
from ml_collections import ConfigDict

from bert_jax import workdir
from bert_jax.objectives.classification import Classification
from bert_jax.objectives.regression import Regression
from bert_jax.tasks import Task, TaskDataError, scores, spanned
from bert_jax.tasks.features import Features, evenly_spread
from bert_jax.tasks.spanned import SpannedFeatures
from bert_jax.visual import samples

_SAMPLES = 12  # answers that the page of a run shows


@dataclasses.dataclass(frozen=True)
class Split:
    """The texts of a split.

    Attributes:
      texts: N of them; of a choice N * C, an example's choices one after the other.
      pairs: as many second texts, or None.
      labels: N numbers of classes or values; None where they are not known.
      index: what each example is called in a file of predictions; None counts from 0.
      groups: (N,) numbers, from 0, of what is judged together; None where each stands alone.
      spans: of each example two that the classifier reads (`spanned`), in characters; None for none.
    """

    texts: Sequence[str]
    pairs: Sequence[str] | None
    labels: Sequence[float] | None
    index: Sequence[str] | None = None
    groups: Sequence[int] | None = None
    spans: Sequence[tuple[spanned.Span, spanned.Span]] | None = None


class SequenceTask(Task):
    """A task of classification, regression or choice.

    A class's number is its place in `names`; a regression has none. Subclasses give the metrics.

    Attributes:
      names: of the classes, or of the choices.
      majority: the most frequent class of the training data.
      mean: the mean value of the training data.
    """

    def __init__(
        self,
        config: ConfigDict,
        tokenizer: Any,
        *,
        names: Sequence[str],
        train: Split,
        evals: Mapping[str, Split],
        tests: Mapping[str, Split] | None = None,
        choices: int = 1,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Tokenises all splits.

        Args:
          config: the whole config.
          tokenizer: of `bert_jax.data.tokenizer`.
          names: of the classes or choices; () for a regression.
          train, evals, tests: the data.
          choices: C.
          facts: more for `Task.facts`.

        Raises:
          ValueError: a class has no training example, or a split no example.
        """
        self.names = tuple(names)
        self._indices = {name: split.index for name, split in {**evals, **(tests or {})}.items()}

        def features(
            split: Split, batch_size: int, train: bool, everything: bool = False
        ) -> Features | SpannedFeatures:
            keys = {"pairs": split.pairs, "batch_size": batch_size, "train": train, "everything": everything}
            if split.spans is not None:
                return SpannedFeatures(split.texts, split.labels, split.spans, tokenizer, config, **keys)
            return Features(
                split.texts, split.labels, tokenizer, config, choices=choices, groups=split.groups, **keys
            )

        values = np.asarray(train.labels)
        if self.names and choices == 1 and len(values):
            missing = [n for n, c in zip(self.names, self._counts(values), strict=True) if not c]
            if missing:
                raise TaskDataError(
                    f"data.path = {config.data.path!r}: no training example is {missing[0]}: some must be"
                )
        size = config.train.batch_size
        self.train = features(train, size, train=True)
        self.majority = int(np.argmax(self._counts(values))) if self.names else 0
        self.mean = float(np.mean(values))
        size = config.train.eval_batch_size or size
        self.evals = {name: features(split, size, train=False) for name, split in evals.items()}
        self.tests = {
            name: features(split, size, train=False, everything=True) for name, split in (tests or {}).items()
        }
        if self.names and choices == 1:
            kind, self.labels = "classification" if train.spans is None else "spans", self.names
        else:
            # A choice has one logit a text: what a class of the model is called says nothing of it.
            kind, self.labels = "choice" if self.names else "regression", ("score",)
        self.heads = {"labels": len(self.labels), **({"marked": spanned.MARKED} if kind == "spans" else {})}
        self.objective = Classification() if self.names else Regression()
        self.facts = {"kind": kind, "seq_len": config.data.seq_len, "pairs": train.pairs is not None}
        if kind == "choice":
            self.facts["choices"] = list(self.names)
        self.facts |= facts or {}

    def _counts(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(values.astype(np.int64), minlength=len(self.names))

    def class_scores(self, name: str, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
        """Returns labels and guesses, (N,) int, and the scores that every classification has.

        `majority_class_accuracy` is that of always answering the training data's most frequent class.

        Args:
          name: of the evaluation.
          logits: (N, classes).
        """
        labels, guesses = self.evals[name].labels, np.argmax(logits, axis=-1)
        found = {
            "accuracy": scores.accuracy(labels, guesses),
            **scores.of_classes(guesses, self.names),
            "majority_class_accuracy": float(np.mean(labels == self.majority)),
        }
        return labels, guesses, found

    def value_scores(self, name: str, logits: np.ndarray) -> dict[str, float]:
        """Returns the scores of a regression; `mean_score_mse` is that of always answering the mean.

        The correlation of such an answer is 0.

        Args:
          name: of the evaluation.
          logits: (N, 1).
        """
        values, guesses = self.evals[name].labels, logits[:, 0]
        return {
            **scores.correlations(values, guesses),
            "mse": float(np.mean((values - guesses) ** 2)),
            "mean_score_mse": float(np.mean((values - self.mean) ** 2)),
        }

    def samples(self, outputs: Mapping[str, np.ndarray], tokenizer: Any) -> dict[str, Any]:
        """Returns some answers beside what is right, and the confusion of classes."""
        examples, logits = self.evals["eval"], outputs["logits"]
        guesses = np.argmax(logits, axis=-1)
        answers = []
        for number in evenly_spread(examples.num_examples, _SAMPLES).tolist():
            rows = examples.ids(number)
            text = " / ".join(tokenizer.decode(row) for row in rows)
            if self.names:
                gold, said = self.names[int(examples.labels[number])], self.names[int(guesses[number])]
                right: bool | None = gold == said
            else:
                gold, said, right = f"{examples.labels[number]:.3g}", f"{logits[number, 0]:.3g}", None
            answers.append({"text": text, "gold": gold, "said": said, "right": right})
        found: dict[str, Any] = {"answers": answers}
        if self.names:
            found["confusion"] = samples.confusion(examples.labels, guesses, self.names)
        return found

    def index(self, name: str) -> list[str]:
        """Returns what each example of an evaluation or test is called in a file of predictions."""
        given, numbers = self._indices[name], self._examples(name).numbers
        return [str(n) if given is None else str(given[n]) for n in numbers.tolist()]

    def _examples(self, name: str) -> Features | SpannedFeatures:
        return self.evals[name] if name in self.evals else self.tests[name]

    def write_predictions(self, folder: epath.Path, name: str, outputs: Mapping[str, np.ndarray]) -> None:
        """Writes a JSON line an example: its index, the guess with its probabilities, and what is right."""
        logits = outputs["logits"].astype(np.float64)
        gold = self._examples(name).labels if name in self.evals else None
        lines = []
        for row, index in enumerate(self.index(name)):
            line: dict[str, Any] = {"index": index}
            if self.names:
                shares = np.exp(logits[row] - logits[row].max())
                shares = (shares / shares.sum()).tolist()
                line["label"] = self.names[int(np.argmax(logits[row]))]
                line["probabilities"] = {n: _short(p) for n, p in zip(self.names, shares, strict=True)}
            else:
                line["score"] = _short(logits[row, 0])
            if gold is not None:
                line["gold"] = self.names[int(gold[row])] if self.names else _short(gold[row])
            lines.append(json.dumps(line, ensure_ascii=False) + "\n")
        workdir.write(folder / f"{name}.jsonl", "".join(lines))


def _short(value: float) -> float:
    return float(f"{value:.6g}")  # what float32 can be trusted with
