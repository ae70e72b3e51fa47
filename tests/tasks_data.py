"""What the tests of tasks share: a vocabulary of four words, configs, and data in the form of TFDS."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from bert_jax import config as config_lib
from bert_jax.data import tokenizer as tokenizer_lib

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"]


def tokenizer(folder: pathlib.Path, tokens: Sequence[str] = VOCABULARY) -> tokenizer_lib.Tokenizer:
    """A tokenizer of these tokens; to that of VOCABULARY a, b, c and d are 5, 6, 7 and 8."""
    file = folder / "vocab.txt"
    file.write_text("\n".join(tokens))
    return tokenizer_lib.load(file, lowercase=True)


def config(name: str, path: pathlib.Path | str, **keys: Any) -> ConfigDict:
    """A config of a task on rows of 12 tokens; keys as group__key."""
    c = config_lib.default()
    c.task.name, c.data.path, c.train.batch_size, c.data.seq_len, c.train.steps = name, str(path), 4, 12, 1
    for key, value in keys.items():
        group, _, leaf = key.partition("__")
        c[group][leaf] = value
    config_lib.validate(c)
    return c


def words(examples: Any, row: int = 0) -> str:
    """The tokens of an evaluation's example, spelt out, padding left out."""
    batch = examples.batch(row // examples.batch_size, np.array([row % examples.batch_size]))
    return " ".join(VOCABULARY[i] for i in batch["tokens"].ravel() if i)


def tfds(
    folder: pathlib.Path,
    name: str,
    features: Mapping[str, Any],
    splits: Mapping[str, Sequence[Mapping[str, Any]]],
) -> None:
    """Writes a dataset that TFDS opens as `name` with data_dir = folder.

    Args:
      folder: data_dir.
      name: in lower case.
      features: str for a text, a list of class names, a NumPy type, a dict of these, or (one of these,) for a
        sequence.
      splits: the rows of each.
    """
    import tensorflow_datasets

    def feature(kind: Any) -> Any:
        if kind is str:
            return tensorflow_datasets.features.Text()
        if isinstance(kind, dict):
            return {key: feature(each) for key, each in kind.items()}
        if isinstance(kind, tuple):
            return tensorflow_datasets.features.Sequence(feature(kind[0]))
        return tensorflow_datasets.features.ClassLabel(names=kind) if isinstance(kind, list) else kind

    def info(self: Any) -> Any:
        made = tensorflow_datasets.features.FeaturesDict({key: feature(f) for key, f in features.items()})
        return tensorflow_datasets.core.DatasetInfo(builder=self, features=made)

    def generators(self: Any, manager: object) -> dict[str, Any]:
        return {split: iter(list(enumerate(rows))) for split, rows in splits.items()}

    members = {
        "__doc__": "Made rows.",
        "__module__": __name__,
        "VERSION": tensorflow_datasets.core.Version("1.0.0"),
        "_info": info,
        "_split_generators": generators,
        "_generate_examples": lambda self: None,
    }
    builder = type(name.capitalize(), (tensorflow_datasets.core.GeneratorBasedBuilder,), members)
    builder(data_dir=folder).download_and_prepare()
