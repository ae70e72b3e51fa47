"""SuperGLUE (Wang et al. 2019): eight tasks and two diagnostic sets, from files or from TFDS.

What a model reads follows the paper's BERT baseline (section 4.1): pairs of texts; for COPA the premise with
its question and each choice; for MultiRC and ReCoRD the passage with each answer, and with the query that is
filled with each entity; for WiC and WSC the states of [CLS] and of the two words or phrases, these as means
of their tokens.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath
from ml_collections import ConfigDict

from bert_jax import workdir
from bert_jax.tasks import Task, TaskDataError, scores, superglue_data, superglue_scores, tables
from bert_jax.tasks.sequence import SequenceTask, Split
from bert_jax.tasks.superglue_benchmarks import BENCHMARKS, DIAGNOSTICS
from bert_jax.tasks.superglue_data import Item


class SuperGlue(SequenceTask):
    """One task of SuperGLUE.

    BoolQ, COPA, RTE, WiC and WSC are judged by accuracy, CB by the mean of macro-averaged F1 and accuracy,
    MultiRC by that of F1 over all answers and exact match of questions, ReCoRD by that of F1 and exact match
    of the entity with the highest score. Of the diagnostics AX-b is judged by Matthews correlation, AX-g by
    accuracy and gender parity.
    """

    def __init__(self, config: ConfigDict, tokenizer: Any, data: Mapping[str, Any]) -> None:
        """Tokenises the examples.

        Args:
          config: the whole config; `task.name` is one of BENCHMARKS.
          tokenizer: of `bert_jax.data.tokenizer`.
          data: `train`, `evals` and `tests`, as `superglue_data.of_folder` returns them.
        """
        self._name, self._all = config.task.name, {**data["evals"], **data["tests"]}
        benchmark = BENCHMARKS[self._name]
        self.metric = benchmark.metric
        plain = not benchmark.inside and self._name not in ("copa", "wic")
        columns = dict(zip(("text", "text_pair"), benchmark.fields, strict=False)) if plain else {}
        super().__init__(
            config, tokenizer, names=benchmark.names, choices=2 if self._name == "copa" else 1,
            facts={"columns": columns, "superglue": self._name},
            **{"train": _split(data["train"])},
            **{kind: {n: _split(some) for n, some in data[kind].items()} for kind in ("evals", "tests")},
        )  # fmt: skip

    def items(self, name: str) -> list[Item]:
        """Returns the examples of an evaluation or test, those that are read."""
        return [self._all[name][n] for n in self._examples(name).numbers.tolist()]

    def metrics(self, name: str, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Returns the metrics of the benchmark, the shares of predicted classes, and the baselines."""
        logits = outputs["logits"]
        if self._name == "record":
            return superglue_scores.of_queries(self.items(name), _margins(logits))
        labels, said, found = self.class_scores(name, logits)
        always = np.full_like(labels, self.majority)
        if name in DIAGNOSTICS:
            if name == "axb":
                return {"mcc": scores.matthews(labels, said), **found}
            return {**found, **superglue_scores.gender_parity(self.items(name), said)}
        if self._name == "multirc":
            questions = [item.group for item in self.items(name)]
            guesses = {"": said, "majority_class_": always, "all_true_": np.ones_like(labels)}
            each = {
                prefix + key: value
                for prefix, its in guesses.items()
                for key, value in superglue_scores.of_questions(questions, labels, its).items()
            }
            return {**each, **found}
        if self._name == "cb":
            each = {}
            for prefix, its in (("", said), ("majority_class_", always)):
                f1 = scores.macro_f1(labels, its, len(self.names))
                each |= {
                    f"{prefix}f1_accuracy": (f1 + scores.accuracy(labels, its)) / 2,
                    f"{prefix}f1": f1,
                }
            return {**each, **found}
        return found

    def write_predictions(self, folder: epath.Path, name: str, outputs: Mapping[str, np.ndarray]) -> None:
        """Writes JSON lines, and the file that SuperGLUE takes: `idx` and `label`.

        A test's is called as the task (BoolQ.jsonl), an evaluation's has the evaluation's name in it
        (BoolQ.eval.jsonl).
        """
        super().write_predictions(folder, name, outputs)
        benchmark = DIAGNOSTICS.get(name, BENCHMARKS[self._name])
        beside = "" if name == "test" or name in DIAGNOSTICS else f".{name}"
        lines = self._submission(name, outputs["logits"])
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        workdir.write(folder / f"{benchmark.folder}{beside}.jsonl", text)

    def _submission(self, name: str, logits: np.ndarray) -> list[dict[str, Any]]:
        found = self.items(name)
        if self._name == "record":
            best = superglue_scores.chosen([item.group for item in found], _margins(logits))
            return [{"idx": found[n].idx, "label": found[n].answer} for n in best]
        codes = DIAGNOSTICS.get(name, BENCHMARKS[self._name]).codes
        said = [codes[n] for n in np.argmax(logits, axis=-1)]
        if self._name == "multirc":
            return _passages(found, said)
        return [{"idx": item.idx, "label": code} for item, code in zip(found, said, strict=True)]


def _passages(found: Sequence[Item], said: Sequence[int]) -> list[dict[str, Any]]:
    """Returns MultiRC's answers within their questions within their passages, in the order of the data."""
    passages: dict[int, dict[int, list[dict[str, int]]]] = {}
    for item, label in zip(found, said, strict=True):
        passage, question, answer = item.idx
        answers = passages.setdefault(passage, {}).setdefault(question, [])
        answers.append({"idx": answer, "label": label})
    return [
        {
            "idx": passage,
            "passage": {"questions": [{"idx": n, "answers": answers} for n, answers in questions.items()]},
        }
        for passage, questions in passages.items()
    ]


def _margins(logits: np.ndarray) -> np.ndarray:
    """Returns how much more (N, 2) logits are for the second class: it orders as its probability does."""
    return logits[:, 1].astype(np.float64) - logits[:, 0]


def _split(found: Sequence[Item]) -> Split:
    """Returns the texts of examples; a choice's context stands before each of its choices."""
    first, *others = zip(*(item.texts for item in found), strict=True)
    if len(others) == 2:
        first = [text for text in first for _ in others]
        others = [[choice for item in found for choice in item.texts[1:]]]
    known = [item.label for item in found]
    together = found[0].group is not None
    return Split(
        texts=list(first),
        pairs=list(others[0]) if others else None,
        labels=None if None in known else known,
        index=[_called(item) for item in found],
        groups=superglue_data.group_numbers(found) if together else None,
        spans=None if found[0].spans is None else [item.spans for item in found],
    )


def _called(item: Item) -> str:
    """Returns what an example is called in predictions: its idx, with the entity if there is one."""
    idx = item.idx if isinstance(item.idx, tuple) else (item.idx,)
    return "/".join(map(str, (*idx, item.answer) if item.answer else idx))


def make(config: ConfigDict, tokenizer: Any) -> Task:
    """Reads a task of SuperGLUE, by `config.task.name`.

    `config.data.path` is its folder, with train.jsonl and val.jsonl (`task.train_file` and `task.eval_file`
    name others), or its name in TFDS, such as "super_glue/boolq". A test is read where test.jsonl is there.
    Beside RTE's folder, or in it, AX-b/AX-b.jsonl and AX-g/AX-g.jsonl are read too.

    Raises:
      ValueError: a file is missing, not UTF-8 or not of this format, or has a class without example.
    """
    name, path = config.task.name, config.data.path
    folder, benchmark = epath.Path(path).expanduser(), BENCHMARKS[name]
    if folder.is_dir():
        return SuperGlue(config, tokenizer, superglue_data.of_folder(name, benchmark, folder, config))
    tables.refuse_files(config)
    if tables.is_tfds(path):
        return SuperGlue(config, tokenizer, superglue_data.of_tfds(name, benchmark, config))
    raise TaskDataError(
        f"data.path = {path!r}: neither a folder (with train.jsonl and val.jsonl) nor a TFDS name (such as "
        f'"super_glue/{benchmark.tfds}")'
    )
