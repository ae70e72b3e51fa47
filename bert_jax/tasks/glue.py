"""GLUE (Wang et al. 2018): CoLA so far, acceptability of sentences (Warstadt et al. 2018)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from absl import logging
from etils import epath
from ml_collections import ConfigDict
from sklearn.metrics import matthews_corrcoef

from bert_jax.data import files
from bert_jax.objectives.classification import Classification
from bert_jax.tasks import Task, TaskDataError
from bert_jax.tasks.features import Features

_TFDS_NAME = re.compile(r"\w+(/[\w.-]+)?(:[\d.*]+)?")  # as "glue/cola" and "glue/cola:2.0.0"


class Cola(Task):
    """Is a sentence acceptable English? Judged by Matthews correlation.

    `config.data.path` is a folder with train.tsv and dev.tsv as GLUE distributes them (source, label,
    the author's mark, sentence; no header, no quoting), or the TFDS name "glue/cola", whose splits are
    train and validation.
    """

    labels = ("unacceptable", "acceptable")
    metric = "mcc"

    def __init__(self, config: ConfigDict, tokenizer: Any) -> None:
        """Reads and tokenises both splits.

        Args:
          config: the whole config.
          tokenizer: of `bert_jax.data.tokenizer`.

        Raises:
          ValueError: a file is missing, not UTF-8 or not of this format, or has a class without example.
        """
        folder, name = epath.Path(config.data.path).expanduser(), config.data.path
        if folder.is_dir():
            train, dev = (_read_tsv(folder / f"{split}.tsv", self.labels) for split in ("train", "dev"))
        elif _TFDS_NAME.fullmatch(name) and not folder.exists():
            train, dev = _read_tfds(name, config.data.tfds_dir, self.labels)
        else:
            raise TaskDataError(
                f"data.path = {name!r}: neither a folder (with train.tsv and dev.tsv) nor a TFDS name "
                '(such as "glue/cola")'
            )
        counts = np.bincount(train[1], minlength=len(self.labels))
        for label, count in zip(self.labels, counts, strict=True):
            if not count:
                raise TaskDataError(f"data.path = {name!r}: no training example is {label}: some must be")
        self.majority = int(np.argmax(counts))
        size = config.train.batch_size
        self.train = Features(*train, tokenizer, config, batch_size=size, train=True)
        size = config.train.eval_batch_size or size
        self.evals = {"eval": Features(*dev, tokenizer, config, batch_size=size, train=False)}
        self.heads = {"labels": len(self.labels)}
        self.objective = Classification()
        self.facts = {"kind": "classification", "seq_len": config.data.seq_len}

    def metrics(self, name: str, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Returns `mcc`, `accuracy`, the share of predictions of each class, and the baseline.

        `majority_class_accuracy` is that of always answering the training data's most frequent class,
        whose Matthews correlation is 0.

        Args:
          name: "eval".
          outputs: `logits` (N, 2).
        """
        labels, guesses = self.evals[name].labels, np.argmax(outputs["logits"], axis=-1)
        if len(np.unique(guesses)) == 1:
            logging.warning(
                "all %d examples are predicted as %s: Matthews correlation is 0 by definition",
                len(guesses), self.labels[guesses[0]],
            )  # fmt: skip
        constant = len(np.unique(guesses)) == 1 or len(np.unique(labels)) == 1
        shares = np.bincount(guesses, minlength=len(self.labels)) / len(guesses)
        return {
            "mcc": 0.0 if constant else float(matthews_corrcoef(labels, guesses)),
            "accuracy": float(np.mean(guesses == labels)),
            **{f"predicted_share_{label}": float(s) for label, s in zip(self.labels, shares, strict=True)},
            "majority_class_accuracy": float(np.mean(labels == self.majority)),
        }


def make(config: ConfigDict, tokenizer: Any) -> Task:
    """Reads a task of GLUE; `Cola` says how."""
    return Cola(config, tokenizer)


def _read_tsv(file: epath.Path, names: tuple[str, ...]) -> tuple[list[str], list[int]]:
    """Returns sentences and labels of a file of CoLA."""
    if not file.is_file():
        raise TaskDataError(f"{file} is not there: data.path needs train.tsv and dev.tsv of GLUE's CoLA")
    rows = []
    for number, line in files.lines(file):
        where = f"{file}, line {number}"
        columns = line.removesuffix("\r").split("\t")
        if len(columns) != 4:
            raise TaskDataError(
                f"{where}: {len(columns)} columns: CoLA has 4 and no header: source, label, mark, sentence"
            )
        label, sentence = columns[1], columns[3]
        if label not in ("0", "1"):
            raise TaskDataError(f"{where}: label {label!r}: it must be 0 ({names[0]}) or 1 ({names[1]})")
        rows.append((where, sentence, int(label)))
    return _checked(rows, str(file))


def _read_tfds(
    name: str, data_dir: str, labels: tuple[str, ...]
) -> tuple[tuple[list[str], list[int]], tuple[list[str], list[int]]]:
    """Returns sentences and labels of the train and validation splits, in the order of their `idx`."""
    import tensorflow_datasets as tfds  # takes seconds, and folders do without

    try:
        builder = tfds.builder(name, data_dir=data_dir or None)
        builder.download_and_prepare()  # nothing to do where the dataset is there
    except Exception as error:  # TFDS and its downloads raise errors of every kind
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TaskDataError(f"data.path = {name!r}: TFDS cannot give this dataset: {reason}") from error
    needed = ("train", "validation", "sentence", "label", "idx")
    absent = [n for n in needed if n not in builder.info.splits and n not in builder.info.features]
    if absent:
        raise TaskDataError(
            f"data.path = {name!r}: the dataset has no {absent[0]}: it must have the splits and features "
            f"of glue/cola: {', '.join(needed)}"
        )
    splits = []
    for split in needed[:2]:
        rows = []
        for x in tfds.as_numpy(builder.as_dataset(split=split, shuffle_files=False)):
            where, label = f"{name}, {split}, idx {x['idx']}", int(x["label"])
            if not 0 <= label < len(labels):
                raise TaskDataError(f"{where}: label {label}: it must be 0 ({labels[0]}) or 1 ({labels[1]})")
            try:
                rows.append((int(x["idx"]), where, x["sentence"].decode("utf-8"), label))
            except UnicodeDecodeError as error:
                raise TaskDataError(f"{where}: the sentence is not UTF-8") from error
        # Shards hold the examples in an order of their own.
        splits.append(_checked([row[1:] for row in sorted(rows)], f"{name}, {split}"))
    return splits[0], splits[1]


def _checked(rows: Iterable[tuple[str, str, int]], origin: str) -> tuple[list[str], list[int]]:
    """Returns sentences and labels of (place, sentence, label)."""
    sentences, labels = [], []
    for where, sentence, label in rows:
        if not sentence.strip():
            raise TaskDataError(f"{where}: the sentence is empty")
        sentences.append(sentence)
        labels.append(label)
    if not sentences:
        raise TaskDataError(f"{origin} has no example")
    return sentences, labels
