"""Answers that are parts of a text (extractive question answering): SQuAD 1.1 and 2.0, and own data."""

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
from bert_jax.objectives.answer import AnswerSpan
from bert_jax.tasks import (
    Task,
    TaskDataError,
    answer_scores,
    best_spans,
    conll,
    own,
    own_data,
    questions,
    tables,
)
from bert_jax.tasks.best_spans import Said, Spans
from bert_jax.tasks.features import Examples, evenly_spread
from bert_jax.tasks.own_data import Columns
from bert_jax.tasks.passages import Document, Reader, Window
from bert_jax.tasks.questions import Question

_JSON = (".json", ".json.gz")


class Asked(Examples):
    """Questions as windows of their contexts; a batch has `span_labels` beside what `Examples` gives.

    They are (B, 2) int32, the tokens of a row at which its answer starts and ends: 0, [CLS], where the
    question has no answer, or the window has not all of it.

    Attributes:
      questions: those that are read.
      documents: the context of each, in an evaluation.
      rows: of each window of an evaluation the number of its question, and the window.
    """

    def __init__(
        self,
        asked: Sequence[Question],
        reader: Reader,
        tokenizer: Tokenizer,
        config: ConfigDict,
        *,
        batch_size: int,
        train: bool,
    ) -> None:
        """Cuts the contexts into windows.

        In training a question is left out if none of its answers stands where it says, and the first that
        does is learnt. In an evaluation all are asked, and answers are compared by their texts.

        Args:
          asked: the questions; of an evaluation `train.eval_rows` are taken, evenly spread.
          reader: makes their rows.
          tokenizer: of `bert_jax.data.tokenizer`.
          config: the whole config.
          batch_size, train: as in `Examples`.

        Raises:
          ValueError: there is no question that can be trained on.
        """
        if not train:
            asked = [asked[i] for i in evenly_spread(len(asked), config.train.eval_rows)]
        self.questions, self.documents, self.rows = [], [], []
        known: dict[str, Document] = {}
        ids, type_ids, labels, longer = [], [], [], 0
        misplaced, unused = [], 0
        for question in asked:
            if question.context not in known:
                known[question.context] = reader.document(question.context)
            document, place = known[question.context], None
            standing = [each for each in question.answers if each.stands_in(question.context)]
            if len(standing) < len(question.answers):
                misplaced.append(question.where)
            for answer in standing[:1]:
                place = document.tokens(answer.start, answer.start + len(answer.text))
            if train and question.answers and place is None:
                unused += 1
                continue
            tokens = reader.question(question.text)
            windows = reader.windows(tokens, document)
            longer += len(windows) > 1
            for window in windows:
                row, types = reader.row(tokens, document, window)
                ids.append(np.array(row, np.int32))
                type_ids.append(np.array(types, np.int8))
                labels.append(_labels(place, window))
                if not train:
                    self.rows.append((len(self.questions), window))
            self.questions.append(question)
            if not train:
                self.documents.append(document)
        name = "training" if train else "evaluation"
        if misplaced:
            logging.warning(
                "%d of %d %s questions have an answer that does not stand in the context where it says "
                "(the first: %s)%s",
                len(misplaced), len(asked), name, misplaced[0],
                "" if train else "; it is compared by its text all the same",
            )  # fmt: skip
        if unused:
            logging.warning("%d %s questions without a usable answer are left out", unused, name)
        if not self.questions:
            raise TaskDataError(f"no {name} question is left: check where the answers start")
        super().__init__(
            ids, type_ids, tokenizer, config,
            batch_size=batch_size, train=train, arrays={"span_labels": np.array(labels)},
        )  # fmt: skip
        logging.info(
            "%d %s questions, %d without an answer, in %d windows, %d of them with one; %d contexts are "
            "longer than a window",
            len(self.questions), name, sum(not question.answers for question in self.questions),
            len(ids), sum(label != (0, 0) for label in labels), longer,
        )  # fmt: skip


def _labels(place: tuple[int, int] | None, window: Window) -> tuple[int, int]:
    """Returns the tokens of a row at which the answer starts and ends, both 0 if it has not all of it."""
    if place is None or place[0] < window.first or place[1] >= window.stop:
        return 0, 0
    return place[0] - window.first + window.place, place[1] - window.first + window.place


class Answers(Task):
    """Parts of contexts that answer questions, judged by F1 of words and exact match.

    Attributes:
      nulls: whether there are questions without an answer.
    """

    outputs = ("span_logits",)
    labels = ()

    def __init__(
        self,
        config: ConfigDict,
        tokenizer: Tokenizer,
        train: Sequence[Question],
        held_out: Sequence[Question],
        columns: Mapping[str, Any],
    ) -> None:
        """Cuts the contexts into windows.

        Args:
          config: the whole config.
          tokenizer: of `bert_jax.data.tokenizer`.
          train, held_out: the questions.
          columns: "text" and "text_pair" of a table with question and context.
        """
        asked = config.task.unanswerable
        self.nulls = any(not q.answers for q in (*train, *held_out)) if asked is None else asked
        if not self.nulls:
            train, held_out = (_answerable(split) for split in (train, held_out))
        self.metric = "best_f1" if self.nulls else "f1"
        seq_len, size = config.data.seq_len, config.train.batch_size
        self._max_answer = config.task.max_answer
        self._n_best = min(config.task.n_best, seq_len * self._max_answer)  # there are no more in a window
        reader = Reader(tokenizer, seq_len, config.task.stride, config.task.max_question)
        self.train = Asked(train, reader, tokenizer, config, batch_size=size, train=True)
        size = config.train.eval_batch_size or size
        self._asked = Asked(held_out, reader, tokenizer, config, batch_size=size, train=False)
        self.evals = {"eval": self._asked}
        self.heads = {"has_span": True}
        self.objective = AnswerSpan()
        self._threshold: float | None = None  # of an earlier evaluation
        self.facts = {
            "kind": "answers", "seq_len": seq_len, "stride": config.task.stride,
            "max_question": config.task.max_question, "max_answer": config.task.max_answer,
            "unanswerable": self.nulls, "null_threshold": 0.0, "columns": dict(columns),
        }  # fmt: skip

    def condensed(self, name: str, first: int, outputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Returns the best answers of each window (the fields of `Spans`) for (B, S, 2) logits."""
        made = []
        for number, logits in enumerate(outputs["span_logits"], first):
            # What pads the last batch has no window, and is dropped: the first one's stands for it.
            question, window = self._asked.rows[number if number < self._asked.num_examples else 0]
            document = self._asked.documents[question]
            made.append(best_spans.of_window(logits, document, window, self._max_answer, self._n_best))
        return best_spans.stacked(made)

    def metrics(self, name: str, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Returns the scores of what `write_predictions` writes.

        They are `f1` and `exact`; beside them those of always saying that there is no answer
        (`no_answer_f1`, `no_answer_exact`). With unanswerable questions a threshold of the null odds is
        found that is best for F1 (`best_f1`, `best_f1_thresh`), and `f1` and `exact` are those with it, or
        rather with `null_threshold`, half way to the next higher odds, which `bert_jax.predict` takes; where
        an earlier evaluation decided that (`recall`), it stays. There are also `best_exact` with a threshold
        of its own, both where the threshold is 0 (`untuned_f1`, `untuned_exact`), and those of the questions
        with (`HasAns_`) and without an answer (`NoAns_`). Names are those of SQuAD 2.0's script.
        """
        said = self._said(outputs)
        golds = [[answer.text for answer in question.answers] for question in self._asked.questions]

        def judged(texts: Sequence[str]) -> np.ndarray:  # (N, 2): exact, F1
            each = zip(texts, golds, strict=True)
            return np.array([answer_scores.of_question(text, gold, self.nulls) for text, gold in each])

        nothing = judged([""] * len(said))
        found = dict(zip(("no_answer_exact", "no_answer_f1"), nothing.mean(axis=0).tolist(), strict=True))
        full = [each.text(None) for each in said]
        always = judged(full)
        if not self.nulls:
            return {**dict(zip(("exact", "f1"), always.mean(axis=0).tolist(), strict=True)), **found}
        answerable, odds = np.array([bool(gold) for gold in golds]), np.array([each.odds for each in said])
        answered = np.array([bool(text) for text in full])
        for column, key in enumerate(("exact", "f1")):
            best = answer_scores.best_threshold(always[:, column], odds, answerable, answered)
            found[f"best_{key}"], found[f"best_{key}_thresh"], above = best
        # The last of the two is F1. Odds that are another's to rounding must not be on its wrong side.
        chosen = (found["best_f1_thresh"] + above) / 2
        found["null_threshold"] = chosen if self._threshold is None else self._threshold
        for threshold, prefix in ((found["null_threshold"], ""), (0.0, "untuned_")):
            scores = np.where((odds > threshold)[:, None], ~answerable[:, None], always)
            for column, key in enumerate(("exact", "f1")):
                found[prefix + key] = float(scores[:, column].mean())
                for some, part in ((answerable, "HasAns_"), (~answerable, "NoAns_")):
                    if not prefix and some.any():
                        found[part + key] = float(scores[some, column].mean())
        return found

    def recall(self, facts: Mapping[str, Any]) -> None:
        """Takes the threshold that `predict` takes: one chosen on the rows that it judges would flatter."""
        self._threshold = facts.get("null_threshold") if self.nulls else None

    def facts_of(self, metrics: Mapping[str, float]) -> Mapping[str, Any]:
        """Returns the facts with the threshold above which the model is to say that there is no answer."""
        return {**self.facts, "null_threshold": metrics["null_threshold"]} if self.nulls else self.facts

    def write_predictions(self, folder: epath.Path, name: str, outputs: Mapping[str, np.ndarray]) -> None:
        """Writes the files of SQuAD's scripts, by the questions' ids.

        `predictions.json` has the answers, "" for none; `nbest_predictions.json` the best of each, with their
        logits and their probability among all that the model may say; `null_odds.json`, where there are
        unanswerable questions, the score of no answer less that of the best one.
        """
        said = dict(zip((q.id for q in self._asked.questions), self._said(outputs), strict=True))
        threshold = self.metrics(name, outputs)["null_threshold"] if self.nulls else None
        best = {}
        for id, each in said.items():
            candidates = sorted(
                (*each.answers, *((each.null,) if self.nulls else ())), key=lambda c: -c.score
            )
            best[id] = [
                {
                    "text": c.text, "probability": float(np.exp(c.log_prob)), "log_probability": c.log_prob,
                    "start_logit": c.logits[0], "end_logit": c.logits[1],
                }
                for c in candidates
            ]  # fmt: skip
        files: dict[str, Any] = {
            "predictions": {id: each.text(threshold) for id, each in said.items()},
            "nbest_predictions": best,
        }
        if self.nulls:
            files["null_odds"] = {id: each.odds for id, each in said.items()}
        for file, content in files.items():
            workdir.write(folder / f"{file}.json", json.dumps(content, indent=1) + "\n")

    def _said(self, outputs: Mapping[str, np.ndarray]) -> list[Said]:
        """Returns what the model says to each question of the evaluation."""
        windows: list[list[Spans]] = [[] for _ in self._asked.questions]
        names = [field.name for field in dataclasses.fields(Spans)]
        for row, (question, _) in enumerate(self._asked.rows):
            windows[question].append(Spans(*(outputs[key][row] for key in names)))
        return [
            best_spans.merged(document, some, self._n_best, self.nulls)
            for document, some in zip(self._asked.documents, windows, strict=True)
        ]


def _answerable(asked: Sequence[Question]) -> list[Question]:
    """Returns the questions that have an answer, and says how many have none."""
    left = [question for question in asked if question.answers]
    if len(left) < len(asked):
        logging.info(
            "%d of %d questions have no answer, and are left out (task.unanswerable = False)",
            len(asked) - len(left), len(asked),
        )  # fmt: skip
    if not left:
        raise TaskDataError("no question has an answer: leave task.unanswerable = False out")
    return left


def make(config: ConfigDict, tokenizer: Tokenizer) -> Task:
    """Reads questions with their contexts and answers.

    "squad": `config.data.path` is a file of SQuAD's form (`questions.read`), a folder with one whose name has
    "train" in it and one with "dev", "valid" or "eval" (`task.train_file` and `task.eval_file` name others),
    or the name that TFDS has for SQuAD. "spans": a table, a folder of them or a TFDS name, as other own
    data (`own.make`), with the columns that `task.text`, `task.text_pair`, `task.label` and
    `task.answer_start` name (`questions.of_rows`). Without evaluation data, which `data.eval_path` names too,
    `data.eval_fraction` of the questions is held out, all of a context together.

    Raises:
      ValueError: a file, or a question in it, is not as it must be; the message names file and place.
    """
    task = config.task
    names = task.text or "question", task.text_pair or "context", task.label or "answer"
    columns = {"text": names[0], "text_pair": names[1]}
    held_out: list[Question] | None
    is_file = config.data.path.lower().endswith(_JSON)
    if task.name == "squad" and (is_file or not tables.is_tfds(config.data.path)):
        train_file, eval_file = conll.find(config, _JSON)
        train = questions.read(train_file)
        held_out = None if eval_file is None else questions.read(eval_file)
    else:
        if task.name == "squad":
            names = (*names[:2], "answers")
        wanted = Columns(names[0], names[1], (), names[2], (), number=False)
        rows, more = own_data.read(config, wanted, (task.answer_start, "id"))
        train = questions.of_rows(rows, names, task.answer_start)
        held_out = None if more is None else questions.of_rows(more, names, task.answer_start)
    if held_out is None:
        train, held_out = own.hold_out_by(
            [question.context for question in train],
            train,
            config.data.eval_fraction,
            what="questions",
            how="all of a context together, chosen by their contexts, the same under any seed",
        )
    return Answers(config, tokenizer, train, held_out, columns)
