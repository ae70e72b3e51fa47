"""The texts of a pretraining run: prepared, opened, and laid out as examples for each phase."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from absl import logging
from etils import epath
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

from bert_jax import jsonl
from bert_jax import workdir as workdir_lib
from bert_jax.config import ConfigError
from bert_jax.data import mixture, pipeline, prepare, shards
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.encoding import MUCH_UNKNOWN

_GENERAL_HOLDOUT = 0.05  # of the general text, where the run's own text has an eval_path and no share


@dataclasses.dataclass(frozen=True)
class Text:
    """Prepared texts that one vocabulary made.

    Attributes:
      tokenizer: theirs.
      train: the training split of each text.
      eval: the held-out split of each; one where they are the same.
      weights: each one's share of the training examples; one text has 1.
      unigram: (V,) how often each token occurs in training, the texts weighted.
      general: the held-out split of `data.general_path`; None without one.
      digest: of all their tokens and of how they are mixed: other text has another one.
    """

    tokenizer: Any
    train: tuple[Any, ...]
    eval: tuple[Any, ...]
    weights: tuple[float, ...]
    unigram: np.ndarray
    general: Any | None
    digest: str

    def examples(
        self,
        config: ConfigDict,
        goals: Sequence[Any],
        *,
        batch_size: int,
        seq_len: int,
        phase: int,
        train: bool,
    ) -> Any:
        """Returns the training or evaluation examples of a phase.

        Args:
          config: the run's.
          goals: the objectives, for rows of this length.
          batch_size: B.
          seq_len: S.
          phase: number of the phase, from 0: each has an order and masks of its own.
          train: for training, or for evaluation.
        """
        splits = self.train if train else self.eval
        parts = [
            pipeline.Examples(
                split,
                self.tokenizer,
                config,
                objectives=goals,
                batch_size=batch_size,
                train=train,
                seq_len=seq_len,
                phase=phase,
                part=number,
            )
            for number, split in enumerate(splits)
        ]
        if len(parts) == 1:
            return parts[0]
        return mixture.Mixture(
            parts,
            self.weights,
            seed=config.seed,
            batch_size=batch_size,
            train=train,
            pad_id=self.tokenizer.pad_id,
            eval_rows=config.train.eval_rows,
            phase=phase,
        )

    def general_examples(
        self, config: ConfigDict, goals: Sequence[Any], *, batch_size: int, seq_len: int
    ) -> pipeline.Examples | None:
        """Returns the examples of the general text, for evaluation; None without one."""
        if self.general is None:
            return None
        return pipeline.Examples(
            self.general,
            self.tokenizer,
            config,
            objectives=goals,
            batch_size=batch_size,
            train=False,
            seq_len=seq_len,
        )


def open_text(config: ConfigDict) -> Text:
    """Prepares the texts of a config, or finds them prepared, and opens them.

    Of a mixture without a given vocabulary, the first text's is trained or taken, for all.

    Raises:
      ValueError: a text or the tokenizer cannot be used; the message says why.
    """
    mixed = tuple(config.data.mixture) or ((config.data.path, 1.0),)
    folders: list[pathlib.Path] = []
    for path, _ in mixed:
        folders.append(_prepared(config, path, folders[0] if folders else None))
    vocabulary, case = folders[0] / workdir_lib.TOKENIZER, (config.data.lowercase, config.data.strip_accents)
    tokenizer = tokenizers.load(vocabulary)
    if tokenizer.digest() != shards.read_index(folders[0])["tokenizer"]:
        raise shards.ShardError(
            f"{vocabulary} is not the vocabulary that made the shards beside it: prepare the text again"
        )
    if case != (None, None):
        tokenizer = tokenizers.load(vocabulary, *case)
    cache = config.data.cache_dir
    train = tuple(shards.open(folder, "train", cache) for folder in folders)
    total = sum(weight for _, weight in mixed)
    weights = tuple(weight / total for _, weight in mixed)
    tokens = sum(split.num_tokens for split in train)
    unigram = np.zeros(tokenizer.vocab_size)
    for split, weight in zip(train, weights, strict=True):
        unigram += split.unigram * (weight * tokens / split.num_tokens)
    general = None
    if config.data.general_path:
        folder = _prepared(_of_general(config), config.data.general_path, folders[0])
        general = shards.open(folder, "eval", cache)
    held_out = [shards.read_index(folder)["splits"].get("eval") for folder in folders]
    # One data.eval_path is held out by every text of a mixture: it is read once.
    told = folders[:1] if held_out[0] and held_out.count(held_out[0]) == len(folders) else folders
    text = Text(
        tokenizer=tokenizer,
        train=train,
        eval=tuple(shards.open(folder, "eval", cache) for folder in told),
        weights=weights,
        unigram=train[0].unigram if len(train) == 1 else np.rint(unigram).astype(np.int64),
        general=general,
        digest=_digest(folders, weights),
    )
    unknown = text.unigram[tokenizer.unk_id] / max(1, text.unigram.sum())
    if unknown > MUCH_UNKNOWN:
        logging.warning(
            "%.1f%% of the training tokens are unknown to the vocabulary: it does not fit the text",
            100 * unknown,
        )
    return text


def open_again(config: ConfigDict, workdir: epath.Path) -> Text:
    """Opens the texts of a run that has saved checkpoints, in the vocabulary that it has.

    Text that was changed since would give another one, whose numbers mean other words to the model.

    Raises:
      ValueError: as `open_text`, and where shards were made with another vocabulary.
    """
    config, vocabulary = config.copy_and_resolve_references(), workdir / workdir_lib.TOKENIZER
    if config.data.tokenizer and not config.data.extend_vocab:
        config.data.tokenizer = str(vocabulary)  # the one that was named may have moved, or changed
    text = open_text(config)
    if tokenizers.load(vocabulary).digest() != text.tokenizer.digest():
        if config.data.source == "shards":
            raise ConfigError(
                f"{vocabulary} is not the vocabulary of the shards, data.path = {config.data.path!r}: name "
                "those that the run began with, prepare the text with data.tokenizer set to it, or take "
                "another --workdir"
            )
        config.data.tokenizer, config.data.extend_vocab = str(vocabulary), 0
        text = open_text(config)
    about = workdir / workdir_lib.ABOUT
    began_with = jsonl.read_object(about).get("text", text.digest) if about.exists() else text.digest
    if began_with != text.digest:
        logging.warning(
            "the text is not the one that the run in %s was trained on: its vocabulary is kept, and what it "
            "is shown and judged by is other text from here on",
            workdir,
        )
    return text


def _digest(folders: Sequence[pathlib.Path], weights: Sequence[float]) -> str:
    splits = [shards.read_index(folder)["splits"] for folder in folders]  # they have each file's checksum
    return hashlib.sha256(json.dumps([splits, weights], sort_keys=True).encode()).hexdigest()[:16]


def _of_general(config: ConfigDict) -> ConfigDict:
    """Returns a config for the general text: what it holds out is what its own model did not see."""
    config = config.copy_and_resolve_references()
    config.data.eval_path = ""
    config.data.eval_fraction = config.data.eval_fraction or _GENERAL_HOLDOUT
    if config.data.source in ("embedded", "shards"):  # prepared text is found to be that by its index
        config.data.source = "text"
    return config


def _prepared(config: ConfigDict, path: str, first: pathlib.Path | None) -> pathlib.Path:
    """Returns the shard directory of a text; process 0 of several prepares it, the others find it.

    Args:
      config: the run's.
      path: in place of `data.path`.
      first: the shard directory whose vocabulary this text takes; None where it is the first itself.
    """
    config = config.copy_and_resolve_references()
    config.data.path, config.data.mixture = path, ()
    if first is not None:
        config.data.tokenizer = str(first / workdir_lib.TOKENIZER)
        config.data.extend_vocab = 0
    if path and (epath.Path(path).expanduser() / shards.INDEX).exists():
        config.data.source = "shards"
    if config.data.source != "shards" and not (config.data.eval_path or config.data.eval_fraction):
        raise ConfigError(
            "data.eval_fraction = 0 and no data.eval_path: a run needs text to be evaluated on; set one"
        )
    if jax.process_count() == 1:
        return prepare.cached(config)
    if jax.process_index() == 0:
        prepare.cached(config)
    multihost_utils.sync_global_devices("bert_jax: text is prepared")
    return prepare.cached(config)
