"""Named entities and other tags of words, from files of columns or JSON lines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from absl import logging
from etils import epath
from ml_collections import ConfigDict

from bert_jax import workdir
from bert_jax.data.encoding import Tokenizer
from bert_jax.objectives.tagging import Tagging as TaggingObjective
from bert_jax.tasks import Task, TaskDataError, conll, entity_scores, own, schemes, scores
from bert_jax.tasks.conll import Sentence
from bert_jax.tasks.features import Examples, evenly_spread
from bert_jax.tasks.words import Splitter, Window


class Tagged(Examples):
    """Sentences as windows; a batch has these beside what `Examples` gives, W = S.

    `word_positions` (B, W) int32, where the first piece of each word stands, words at the front of the row
    and 0 behind them; `tag_labels` (B, W) int32; `tag_weights` (B, W) float32, 1 at the words that are
    the window's own, each word of the data once.

    Attributes:
      sentences: those that are read.
      rows: of each window the number of its sentence, and the window.
    """

    def __init__(
        self,
        sentences: Sequence[Sentence],
        names: Sequence[str],
        tokenizer: Tokenizer,
        config: ConfigDict,
        *,
        batch_size: int,
        train: bool,
    ) -> None:
        """Cuts the sentences into windows.

        Args:
          sentences: their tags all in `names`; of an evaluation `train.eval_rows` are taken, evenly spread.
          names: of the tags.
          tokenizer: of `bert_jax.data.tokenizer`.
          config: the whole config.
          batch_size, train: as in `Examples`.
        """
        if not train:
            sentences = [sentences[i] for i in evenly_spread(len(sentences), config.train.eval_rows)]
        self.sentences = list(sentences)
        splitter = Splitter(tokenizer, config.data.seq_len)
        made = [splitter.windows(sentence.words) for sentence in self.sentences]
        self.rows = [(n, window) for n, windows in enumerate(made) for window in windows]
        numbers = {name: i for i, name in enumerate(names)}
        labels, weights = [], []
        for n, window in self.rows:
            start, stop = window.own
            tags = self.sentences[n].tags
            if "crf" in config.task.head and names[0] == "O":
                # An entity that goes on from another window begins here: its path must be one that may be.
                spelt = schemes.entities(tags[start:stop])
                tags = (*tags[:start], *schemes.tags_of(spelt, stop - start), *tags[stop:])
            own_words = range(window.first, window.first + len(window.positions))
            labels.append(_row([numbers[tags[i]] for i in own_words], window))
            weights.append(_row([float(start <= i < stop) for i in own_words], window))
        super().__init__(
            [window.ids for _, window in self.rows], None, tokenizer, config,
            batch_size=batch_size, train=train,
            per_token={
                "word_positions": [_row(window.positions, window) for _, window in self.rows],
                "tag_labels": labels,
                "tag_weights": weights,
            },
        )  # fmt: skip
        cut = sum(len(windows) > 1 for windows in made)
        if cut:
            logging.warning(
                "%d of %d %s sentences are longer than data.seq_len = %d tokens, and are read in %d windows",
                cut, len(made), "training" if train else "evaluation", config.data.seq_len,
                sum(len(windows) for windows in made if len(windows) > 1),
            )  # fmt: skip

    def joined(self, tags: np.ndarray) -> list[list[int]]:
        """Returns the tags of each sentence's words from those of its windows, (N, W) int."""
        found: list[list[int]] = [[] for _ in self.sentences]
        for (n, window), row in zip(self.rows, tags, strict=True):
            found[n] += window.own_of(row).tolist()
        return found


def _row(values: Sequence[float], window: Window) -> np.ndarray:
    """Returns a value for each token of a row from those of its words, which come first."""
    row = np.zeros(len(window.ids), np.float32 if isinstance(values[0], float) else np.int32)
    row[: len(values)] = values
    return row


class Tagging(Task):
    """A tag for each word, scored by words, whatever pieces they have.

    Entities ("ner") are judged by micro-averaged F1 over those that are right in type, first and last word
    (`entity_scores`). Other tags ("tagging") are judged by accuracy.

    Attributes:
      types: of the entities; () of other tags.
    """

    outputs = ("tags",)

    def __init__(
        self,
        config: ConfigDict,
        tokenizer: Tokenizer,
        train: Sequence[Sentence],
        held_out: Sequence[Sentence],
        names: Sequence[str],
    ) -> None:
        """Cuts the sentences into windows.

        Args:
          config: the whole config.
          tokenizer: of `bert_jax.data.tokenizer`.
          train, held_out: the sentences, entities in IOB2.
          names: of the entities' types, or of the tags.

        Raises:
          ValueError: a tag of `held_out` is none of these.
        """
        is_ner = config.task.name == "ner"
        self.types = tuple(names) if is_ner else ()
        self.labels = schemes.names_of(names) if is_ner else tuple(names)
        self.metric = "f1" if is_ner else "accuracy"
        known = {*self.labels}
        for sentence in (*train, *held_out):
            for place, tag in enumerate(sentence.tags):
                if tag not in known:
                    raise TaskDataError(
                        f"{sentence.where(place)}: {_type(tag, is_ner)!r} is none of "
                        f"{', '.join(map(repr, names))}, those of the training data or of task.labels: leave "
                        "it out, or name all by task.labels"
                    )
        head = config.task.head or "linear"
        self.heads = {"token_labels": len(self.labels), "token_head": head}
        if "bilstm" in head:
            self.heads["lstm_size"] = config.task.lstm_size
        if "crf" in head and is_ner:
            self.heads["crf_constraints"] = config.task.constraints
        size = config.train.batch_size
        self.train = Tagged(train, self.labels, tokenizer, config, batch_size=size, train=True)
        size = config.train.eval_batch_size or size
        held = Tagged(held_out, self.labels, tokenizer, config, batch_size=size, train=False)
        self.evals = {"eval": held}
        self.objective = TaggingObjective()
        self.facts = {"kind": "tokens", "seq_len": config.data.seq_len, "entities": is_ner}
        counts = Counter(tag for sentence in train for tag in sentence.tags)
        self._frequent = counts.most_common(1)[0][0]
        count = sum(counts.values())
        logging.info(
            "%d training sentences with %d words, %d evaluation sentences, %d %s: %s",
            len(train), count, len(held.sentences), len(names), "types" if is_ner else "tags",
            ", ".join(names),
        )  # fmt: skip

    def metrics(self, name: str, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Returns the scores of the words' tags, and those of always saying the most frequent one.

        Of entities there are `f1`, `precision` and `recall`, micro-averaged; the same of each type, and
        macro-averaged over the types on either side; `token_accuracy`; and `all_o_token_accuracy`, of finding
        no entity, whose F1 is 0.
        """
        gold, said = self._compared(name, outputs)
        right = [a == b for g, s in zip(gold, said, strict=True) for a, b in zip(g, s, strict=True)]
        accuracy = float(np.mean(right))
        frequent = "O" if self.types else self._frequent
        baseline = float(np.mean([tag == frequent for tags in gold for tag in tags]))
        if self.types:
            if all(tag == "O" for tags in said for tag in tags):
                logging.warning(
                    "no entity is guessed in %d sentences: F1 is 0, and the accuracy of the words that of "
                    "always saying O",
                    len(said),
                )
            found = entity_scores.of_entities(gold, said)
            return {**found, "token_accuracy": accuracy, "all_o_token_accuracy": baseline, "all_o_f1": 0.0}
        numbers = {label: i for i, label in enumerate(self.labels)}
        flat = [np.array([numbers[tag] for tags in side for tag in tags]) for side in (gold, said)]
        return {
            "accuracy": accuracy,
            "macro_f1": scores.macro_f1(*flat, len(self.labels)),
            "majority_tag_accuracy": baseline,
        }

    def write_predictions(self, folder: epath.Path, name: str, outputs: Mapping[str, np.ndarray]) -> None:
        """Writes a line a word: the word, its right tag and the guess, as conlleval reads them.

        Columns are separated by spaces; by tabs where a word has a space in it. Entities are in IOB2.
        """
        sentences = self.evals[name].sentences
        gap = "\t" if any(" " in word for s in sentences for word in s.words) else " "
        lines = []
        for sentence, tags in zip(sentences, self._compared(name, outputs)[1], strict=True):
            for row in zip(sentence.words, sentence.tags, tags, strict=True):
                lines.append(gap.join(row) + "\n")
            lines.append("\n")
        workdir.write(folder / f"{name}.conll", "".join(lines))

    def _compared(
        self, name: str, outputs: Mapping[str, np.ndarray]
    ) -> tuple[list[list[str]], list[list[str]]]:
        """Returns the right and the guessed tags of each sentence."""
        examples = self.evals[name]
        said = [[self.labels[i] for i in row] for row in examples.joined(outputs["tags"])]
        return [list(sentence.tags) for sentence in examples.sentences], said


def _type(tag: str, is_entity: bool) -> str:
    return tag.partition("-")[2] if is_entity else tag


def make(config: ConfigDict, tokenizer: Tokenizer) -> Task:
    """Reads sentences with tags.

    `config.data.path` is the training file, or a folder with one whose name has "train" in it, and for the
    evaluation one with dev, valid, testa or eval, if there is any; `task.train_file` and `task.eval_file`
    name others. Files are of columns or JSON lines (`conll.read`; `task.text` and `task.label` name the
    latter's fields, else they are `tokens` and `tags`). The evaluation is `data.eval_path` where it is set,
    else that of the folder, else `data.eval_fraction` of the training sentences, not trained on.

    Raises:
      ValueError: a file is missing, or not as it must be; the message names file and line.
    """
    train_file, eval_file = conll.find(config)
    task = config.task
    columns, fields = (task.token_column, task.tag_column), (task.text or "tokens", task.label or "tags")
    train = conll.read(train_file, columns, fields)
    held_out = None if eval_file is None else conll.read(eval_file, columns, fields)
    if task.name == "ner":
        scheme = task.scheme
        if scheme == "auto":
            scheme = conll.find_scheme(train)
        else:
            conll.check(train, scheme)
        if held_out is not None:
            conll.check(held_out, scheme)
            held_out = conll.as_iob2(held_out)
        train = conll.as_iob2(train)
    names = tuple(task.labels)
    if not names:
        is_ner = task.name == "ner"
        found = {
            _type(tag, is_ner) for sentence in train for tag in sentence.tags if not is_ner or tag != "O"
        }
        names = tuple(sorted(found))
        if len(names) < (1 if is_ner else 2):
            raise TaskDataError(
                f"{train_file}: every word has the tag {train[0].tags[0]!r}: there must be something to "
                "find; is it the column of the tags (task.tag_column)?"
            )
    if held_out is None:
        train, held_out = own.hold_out_by(
            [json.dumps(sentence.words) for sentence in train],
            train,
            config.data.eval_fraction,
            what="sentences",
            how="chosen by their words, the same under any seed",
        )
    return Tagging(config, tokenizer, train, held_out, names)
