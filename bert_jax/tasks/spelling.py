"""Spelling correction: a right token for each token that is read (Soft-Masked BERT; Zhang et al. 2020)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from absl import logging
from etils import epath
from ml_collections import ConfigDict

from bert_jax import workdir
from bert_jax.data import pipeline
from bert_jax.data.encoding import Encoding, Tokenizer
from bert_jax.data.ordering import generators
from bert_jax.objectives.spelling import Spelling as SpellingObjective
from bert_jax.tasks import Task, TaskDataError, misspelling, parallel, spelling_scores
from bert_jax.tasks.features import Examples, evenly_spread
from bert_jax.tasks.parallel import Texts

_AT_ONCE = 10_000  # texts that are tokenised before they become arrays


class _Rows(Examples):
    """Texts with what they should be; a batch has these beside what `Examples` gives.

    `right` (B, S) int32, the right tokens; `token_weights` (B, S) float32, 1 at the tokens of the text.
    """

    def __init__(self, errors: misspelling.Tokens | None, *args: Any, **keys: Any) -> None:
        """Keeps the rows.

        Args:
          errors: made in each batch anew, the same for the same seed, epoch and example; None: there are
            errors in the rows.
          args, keys: of `Examples`.
        """
        super().__init__(*args, **keys)
        self._errors = errors

    def batch(self, step: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Returns the given rows of a step's batch."""
        made = super().batch(step, rows)
        if self._errors is not None:
            g = step * self.batch_size + np.asarray(rows, np.int64)
            epoch, index = pipeline.order(g, self.num_examples, self._seed)
            draws = generators(self._seed, "errors", epoch, index)
            made["tokens"] = self._errors(made["tokens"], made["token_weights"] > 0, draws)
        return made


class Spelling(Task):
    """Texts with errors and without, judged by F1 of the corrected texts.

    Attributes:
      read, right: of each text of the evaluation its tokens, as they are read and as they should be.
    """

    metric = "sentence_correction_f1"
    outputs = ("corrected", "detection_logits")
    labels = ()

    def __init__(
        self, config: ConfigDict, tokenizer: Tokenizer, train: Sequence[Texts], held_out: Sequence[Texts]
    ) -> None:
        """Tokenises the texts, and makes errors in clean ones.

        Args:
          config: the whole config.
          tokenizer: of `bert_jax.data.tokenizer`.
          train, held_out: the data; of the latter `train.eval_rows` are taken, evenly spread.

        Raises:
          TaskDataError: no text is left, of which a token is right for each that is read.
        """
        task, data = config.task, config.data
        self._config, self._tokenizer = config, tokenizer
        held_out = [held_out[i] for i in evenly_spread(len(held_out), config.train.eval_rows)]
        if task.errors == "letters":
            train, held_out = (_misspelt(pairs, tokenizer, task.error_rate) for pairs in (train, held_out))
        errors = misspelling.Tokens(tokenizer, task.error_rate) if task.errors == "tokens" else None
        self._texts, self.read, self.right = self._tokens(held_out, "evaluation")
        self._share = len(self._texts) / len(held_out)
        if errors is not None:
            draws = generators(0, "errors", np.zeros(len(self.read), np.int64), np.arange(len(self.read)))
            self.read = [
                errors(ids[None], np.ones((1, len(ids)), bool), [draw])[0]
                for ids, draw in zip(self.read, draws, strict=True)
            ]
        _, read, right = self._tokens(train, "training")
        self.heads = {"has_mlm": True, "has_spelling": True, "gru_size": task.gru_size}
        size = config.train.batch_size
        self.train = self._rows(read, right, size, errors, train=True)
        size = config.train.eval_batch_size or size
        self.evals = {"eval": self._rows(self.read, self.right, size, None, train=False)}
        self.objective = SpellingObjective(data.seq_len, task.detection_weight)
        self.facts = {"kind": "spelling", "seq_len": data.seq_len, "columns": {"text": task.text}}

    def _tokens(
        self, pairs: Sequence[Texts], name: str
    ) -> tuple[list[Texts], list[np.ndarray], list[np.ndarray]]:
        """Returns the texts of which both sides have as many tokens, and the tokens of both, without ends."""
        kept, read, right, cut = [], [], [], 0
        room = self._config.data.seq_len - 2
        for start in range(0, len(pairs), _AT_ONCE):
            some = pairs[start : start + _AT_ONCE]
            sides = (
                self._tokenizer.encode_batch([getattr(p, s) for p in some]) for s in ("source", "target")
            )
            for pair, a, b in zip(some, *sides, strict=True):
                if len(a) == len(b) and a:
                    kept.append(pair)
                    read.append(np.array(a[:room], np.int32))
                    right.append(np.array(b[:room], np.int32))
                    cut += len(a) > room
        if len(kept) < len(pairs):
            logging.warning(
                "%d of %d %s texts are left out: they and what they should be have another number of tokens "
                "(the first: %s), and the model puts one token for one",
                len(pairs) - len(kept), len(pairs), name,
                next(p.where for p, k in zip(pairs, [*kept, None], strict=False) if p is not k),
            )  # fmt: skip
        if cut:
            logging.warning("%d of %d %s texts are cut to data.seq_len = %d tokens", cut, len(kept), name,
                            self._config.data.seq_len)  # fmt: skip
        if not kept:
            raise TaskDataError(
                f"of {len(pairs)} {name} texts none has as many tokens as what it should be: is the "
                "vocabulary one of characters, or pieces that are alike on both sides?"
            )
        return kept, read, right

    def _rows(
        self,
        read: Sequence[np.ndarray],
        right: Sequence[np.ndarray],
        batch_size: int,
        errors: misspelling.Tokens | None,
        train: bool,
    ) -> _Rows:
        tok = self._tokenizer
        return _Rows(
            errors,
            [[tok.cls_id, *ids.tolist(), tok.sep_id] for ids in read], None, tok, self._config,
            batch_size=batch_size, train=train,
            per_token={
                "right": [[tok.cls_id, *ids.tolist(), tok.sep_id] for ids in right],
                "token_weights": [np.pad(np.ones(len(ids), np.float32), 1) for ids in right],
            },
        )  # fmt: skip

    def _said(self, outputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Returns the tokens of each text's answer."""
        return [
            accepted(self._tokenizer, ids, row[1 : len(ids) + 1])
            for ids, row in zip(self.read, outputs["corrected"], strict=True)
        ]

    def metrics(self, name: str, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Returns `spelling_scores.of_texts`, `detector_f1` of the detector alone, and `aligned_share`.

        That is the share of the evaluation's texts that are judged, the others having another number of
        tokens than what they should be.
        """
        flagged = [row[1 : len(ids) + 1] > 0 for ids, row in zip(self.read, outputs["detection_logits"],
                                                                 strict=True)]  # fmt: skip
        wrong = [a != b for a, b in zip(self.read, self.right, strict=True)]
        hits = sum(int(np.sum(a & b)) for a, b in zip(flagged, wrong, strict=True))
        both = sum(int(np.sum(a)) + int(np.sum(b)) for a, b in zip(flagged, wrong, strict=True))
        return {
            **spelling_scores.of_texts(self.read, self._said(outputs), self.right),
            "detector_f1": 2 * hits / max(both, 1),
            "aligned_share": self._share,
        }

    def write_predictions(self, folder: epath.Path, name: str, outputs: Mapping[str, np.ndarray]) -> None:
        """Writes a JSON line a text: as it was read, the answer, and what is right.

        Where errors were made of tokens, the texts are those of the tokens.
        """
        lines = []
        for pair, ids, said in zip(self._texts, self.read, self._said(outputs), strict=True):
            if self._config.task.errors == "tokens":
                text, output = (self._tokenizer.decode(x) for x in (ids, said))
            else:
                encoding = self._tokenizer.encode(pair.source, special=False)
                text, output = pair.source, corrected(self._tokenizer, pair.source, encoding, said)[0]
            line = {"text": text, "output": output, "gold": pair.target}
            lines.append(json.dumps(line, ensure_ascii=False) + "\n")
        workdir.write(folder / f"{name}.jsonl", "".join(lines))


def accepted(tokenizer: Tokenizer, read: np.ndarray, said: np.ndarray) -> np.ndarray:
    """Returns what is said of tokens, where it may stand there; else the token as it was read.

    No special token may, nor one that begins a word for one that does not, or the other way round.

    Args:
      tokenizer: of `bert_jax.data.tokenizer`.
      read, said: (n,) int32.
    """
    may = ~np.isin(said, tokenizer.special_ids) & (said < tokenizer.vocab_size)
    said = np.where(may, said, read)
    may &= tokenizer.continues[said] == tokenizer.continues[read]
    return np.where(may, said, read).astype(np.int32)


def corrected(
    tokenizer: Tokenizer, text: str, encoding: Encoding, said: np.ndarray
) -> tuple[str, list[dict[str, Any]]]:
    """Returns a text with the tokens that are another than was read, and what was changed.

    All else stays as it is, capitals too; where a word that is replaced begins with one, what replaces it
    does.

    Args:
      tokenizer: of `bert_jax.data.tokenizer`.
      text: the text.
      encoding: of it, without ends.
      said: tokens for the first of its tokens, of `accepted`.

    Returns:
      The text, and {"token", "start", "end", "from", "to"} of each change: the number of the token, and
      characters of the given text.
    """
    changes = [
        change for change in _changes(tokenizer, text, encoding, said) if change["from"] != change["to"]
    ]
    for change in reversed(changes):
        text = text[: change["start"]] + change["to"] + text[change["end"] :]
    return text, changes


def _changes(
    tokenizer: Tokenizer, text: str, encoding: Encoding, said: np.ndarray
) -> Iterator[dict[str, Any]]:
    read = zip(encoding.ids, said.tolist(), encoding.offsets, strict=False)  # no more than was answered
    for token, (id, other, at) in enumerate(read):
        if other == id or at is None:
            continue
        piece = text[at[0] : at[1]]
        start = at[0] + len(piece) - len(piece.lstrip())
        piece, new = piece.strip(), tokenizer.decode([other]).strip()
        if not piece or not new or "\ufffd" in new:  # part of a letter, or a space
            continue
        if piece[0].isupper() and new[0].islower():
            new = new[0].upper() + new[1:]
        yield {"token": token, "start": start, "end": start + len(piece), "from": piece, "to": new}


def _misspelt(pairs: Sequence[Texts], tokenizer: Tokenizer, rate: float) -> list[Texts]:
    made = misspelling.letters([pair.target for pair in pairs], tokenizer, rate, seed=0)
    return [Texts(pair.where, text, pair.target) for pair, text in zip(pairs, made, strict=True)]


def make(config: ConfigDict, tokenizer: Tokenizer) -> Spelling:
    """Reads texts and what they should be (`parallel.read`), or with `task.errors` clean texts.

    Raises:
      ValueError: a file, column or text is not as it must be; the message names file and line.
    """
    return Spelling(config, tokenizer, *parallel.read(config))
