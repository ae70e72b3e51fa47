"""A text for a text: rows of source and target, answers by beam search, and what they are judged by.

A row is [CLS] source [SEP] target [SEP] under the mask "prefix" (UniLM; Dong et al. 2019): the source sees
the source, the target sees it and itself to the left. Each token of the target, its [SEP] included, is
predicted at the token before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from absl import logging
from etils import epath
from ml_collections import ConfigDict
from sacrebleu.metrics import BLEU, CHRF

from bert_jax import workdir
from bert_jax.data.encoding import Tokenizer
from bert_jax.models import generation
from bert_jax.models.model import Model
from bert_jax.objectives.seq2seq import SequenceToSequence
from bert_jax.tasks import Task, TaskDataError, parallel
from bert_jax.tasks.features import Examples, evenly_spread
from bert_jax.tasks.parallel import Texts

_AT_ONCE = 10_000  # texts that are tokenised before they become arrays


class Sources:
    """Texts as rows [CLS] source [SEP], cut so that there is room for an answer."""

    def __init__(self, tokenizer: Tokenizer, seq_len: int, max_target: int) -> None:
        self._tokenizer = tokenizer
        self._room = seq_len - max_target - 1 - tokenizer.pair_separators

    def rows(self, texts: Sequence[str]) -> Iterator[tuple[list[int], int]]:
        """Yields the ids of each text's row, and how many there would be of the whole text.

        A text that is too long loses its end. Of an empty one there is the row of its ends.
        """
        for ids in self._tokenizer.encode_batch(texts):
            row, _ = self._tokenizer.join(ids[: self._room], [])
            yield row[:-1], len(row) - 1 + max(0, len(ids) - self._room)


def writing(
    tokenizer: Tokenizer, padded_vocab_size: int, max_target: int, beam_size: int, length_penalty: float
) -> generation.Writing:
    """Returns how answers of a tokenizer's tokens are searched for; of special ones they have [SEP] alone."""
    allowed = tokenizer.ordinary(padded_vocab_size)
    allowed[tokenizer.sep_id] = True
    return generation.Writing(
        max_target, tokenizer.sep_id, allowed, tokenizer.pair_type, beam_size, length_penalty
    )


class _Rows(Examples):
    """Sources with their targets; a batch has these beside what `Examples` gives, M = `task.max_target`.

    `prefix` (B, S) int32, 1 for source tokens; `prefix_positions` (B, M) int32, where the target's tokens
    are predicted, `prefix_labels` (B, M) int32, and `prefix_weights` (B, M) float32, 0 behind them.
    """

    def __init__(self, max_target: int, *args: Any, **keys: Any) -> None:
        super().__init__(*args, **keys)
        self._max_target = max_target

    def batch(self, step: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the given rows of a step's batch."""
        made = super().batch(step, rows)
        tokens, sizes = made["tokens"], np.sum(made["segment_ids"], axis=1)
        at = np.sum(made["prefix"], axis=1)[:, None] + np.arange(self._max_target)[None]  # of the labels
        inside = at < sizes[:, None]
        at = np.where(inside, at, 1)
        labels = np.where(inside, np.take_along_axis(tokens, at, axis=1), 0)
        return {
            **made,
            "prefix_positions": (at - 1).astype(np.int32),
            "prefix_labels": labels.astype(np.int32),
            "prefix_weights": inside.astype(np.float32),
        }


class Seq2Seq(Task):
    """Text to text, trained by the next token, judged by BLEU, chrF and exact matches of what it writes.

    The loss chooses checkpoints; answers are written at the end of a run.
    """

    metric = "loss"
    best_mode = "min"
    outputs = ()
    labels = ()

    def __init__(
        self, config: ConfigDict, tokenizer: Tokenizer, train: Sequence[Texts], held_out: Sequence[Texts]
    ) -> None:
        """Tokenises the pairs.

        Args:
          config: the whole config.
          tokenizer: of `bert_jax.data.tokenizer`.
          train, held_out: the data; of the latter `train.eval_rows` are taken, evenly spread.

        Raises:
          TaskDataError: a text has no token.
        """
        task, data = config.task, config.data
        self._config, self._tokenizer = config, tokenizer
        self._pairs = [held_out[i] for i in evenly_spread(len(held_out), config.train.eval_rows)]
        self._sources = Sources(tokenizer, data.seq_len, task.max_target)
        self.result = task.metric
        self.heads = {"has_mlm": True}
        size = config.train.batch_size
        self.train, counts, _, _ = self._rows(train, size, train=True)
        size = config.train.eval_batch_size or size
        held, _, sources, self._gold = self._rows(self._pairs, size, train=False)
        self.evals = {"eval": held}
        self.sources = {"eval": Examples(sources, None, tokenizer, config, batch_size=size, train=False)}
        self.objective = SequenceToSequence(task.max_target, counts)
        self.facts = {
            "kind": "seq2seq", "seq_len": data.seq_len, "max_target": task.max_target,
            "beam_size": task.beam_size, "length_penalty": task.length_penalty,
            "columns": {"text": task.text},
        }  # fmt: skip

    def _rows(
        self, pairs: Sequence[Texts], batch_size: int, train: bool
    ) -> tuple[_Rows, np.ndarray, list[np.ndarray], list[np.ndarray]]:
        """Returns the rows of pairs, how often each token is in their targets, their sources and targets."""
        tokenizer, most = self._tokenizer, self._config.task.max_target
        counts = np.zeros(tokenizer.vocab_size, np.int64)
        sources, targets, types = [], [], []
        cut_sources = cut_targets = 0
        for start in range(0, len(pairs), _AT_ONCE):
            some = pairs[start : start + _AT_ONCE]
            made = zip(
                some,
                self._sources.rows([pair.source for pair in some]),
                tokenizer.encode_batch([pair.target for pair in some]),
                strict=True,
            )
            for pair, (source, whole), target in made:
                if not target or whole == 1 + tokenizer.pair_separators:
                    which = self._config.task["text" if target else "target"]
                    raise TaskDataError(f"{pair.where}: the {which} has no token: it has no letter or sign")
                cut_sources += whole > len(source)
                cut_targets += len(target) >= most
                # A target that is cut does not end, and teaches no end.
                ids = np.array([*target, tokenizer.sep_id][:most], np.int32)
                counts += np.bincount(ids, minlength=len(counts))
                sources.append(np.array(source, np.int32))
                targets.append(ids)
                types.append(np.repeat([0, tokenizer.pair_type], [len(source), len(ids)]).astype(np.int8))
        name = "training" if train else "evaluation"
        for cut, what, key in ((cut_sources, "sources", "data.seq_len - task.max_target"),
                               (cut_targets, "targets", "task.max_target")):  # fmt: skip
            if cut:
                logging.warning("%d of %d %s %s lose their end: %s is too short for them",
                                cut, len(pairs), name, what, key)  # fmt: skip
        both = list(zip(sources, targets, strict=True))
        rows = _Rows(
            most,
            [np.concatenate(pair) for pair in both], types, tokenizer, self._config,
            batch_size=batch_size, train=train,
            per_token={"prefix": [np.repeat([1, 0], [len(a), len(b)]) for a, b in both]},
        )  # fmt: skip
        return rows, counts, sources, targets

    def metrics(self, name: str, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Adds nothing to the loss and accuracy of the next token."""
        return {}

    def generate(self, model: Model, params: Any, batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """Returns what `models.generation.generate` does."""
        task = self._config.task
        how = writing(
            self._tokenizer,
            model.spec.padded_vocab_size,
            task.max_target,
            task.beam_size,
            task.length_penalty,
        )
        return generation.generate(model, params, batch, how)

    def generated_metrics(self, name: str, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Returns the scores of the answers, and `copy_` those of giving the source back.

        `bleu` and `chrf` are of the whole corpus, out of 100, as sacrebleu has them by default, case left out
        where the tokenizer leaves it out; BLEU is 0 where no answer has four words. An answer is an
        `exact_match` where its tokens are the target's; one to a target that was cut at `task.max_target` is
        none. `ended` is the share of answers that came to an end.
        """
        tokens, lengths = outputs["tokens"], outputs["lengths"]
        exact = [
            gold[-1] == self._tokenizer.sep_id and np.array_equal(row[:length], gold)
            for row, length, gold in zip(tokens, lengths, self._gold, strict=True)
        ]
        sources, targets = ([getattr(pair, side) for pair in self._pairs] for side in ("source", "target"))
        plain = [self._tokenizer.decode(ids) for ids in self._tokenizer.encode_batch(sources)]
        same = [
            a == b
            for a, b in zip(
                self._tokenizer.encode_batch(sources), self._tokenizer.encode_batch(targets), strict=True
            )
        ]
        return {
            **self._scores(self._texts(outputs), targets),
            "exact_match": float(np.mean(exact)),
            "ended": float(np.mean(outputs["ended"])),
            **{f"copy_{key}": value for key, value in self._scores(plain, targets).items()},
            "copy_exact_match": float(np.mean(same)),
        }

    def _texts(self, outputs: Mapping[str, np.ndarray]) -> list[str]:
        return [
            self._tokenizer.decode(row[:length])
            for row, length in zip(outputs["tokens"], outputs["lengths"].tolist(), strict=True)
        ]

    def _scores(self, said: Sequence[str], targets: Sequence[str]) -> dict[str, float]:
        lower = self._tokenizer.lowercase
        bleu = BLEU(tokenize=self._config.task.bleu_tokenize, lowercase=lower, force=True)
        return {
            "bleu": float(bleu.corpus_score(said, [targets]).score),
            "chrf": float(CHRF(lowercase=lower).corpus_score(said, [targets]).score),
        }

    def write_predictions(self, folder: epath.Path, name: str, outputs: Mapping[str, np.ndarray]) -> None:
        """Writes a JSON line a source: the answer with its log-probability, and the target."""
        said = zip(
            self._pairs, self._texts(outputs), outputs["log_prob"], outputs["ended"].tolist(), strict=True
        )
        lines = []
        for pair, output, log_prob, ended in said:
            line = {"text": pair.source, "output": output, "log_prob": float(f"{log_prob:.6g}"),
                    "ended": ended, "gold": pair.target}  # fmt: skip
            lines.append(json.dumps(line, ensure_ascii=False) + "\n")
        workdir.write(folder / f"{name}.jsonl", "".join(lines))


def make(config: ConfigDict, tokenizer: Tokenizer) -> Seq2Seq:
    """Reads pairs of texts (`parallel.read`).

    Raises:
      ValueError: a file, column or text is not as it must be; the message names file and line.
    """
    return Seq2Seq(config, tokenizer, *parallel.read(config))
