"""Opens a model: a run's workdir, a model directory, or a directory of another system's."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from absl import logging
from etils import epath

from bert_jax import checkpoint, paths, workdir
from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.interop import huggingface, huggingface_files, native, tensorflow1
from bert_jax.models import spec as spec_lib
from bert_jax.models.model import Model
from bert_jax.models.spec import ModelSpec


class ModelDirectoryError(ValueError):
    """A path that holds no model; the message says what was looked for."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A model as its files hold it.

    Attributes:
      spec: what the model is; it names those heads only that the files hold.
      params: nested dicts of float32 NumPy arrays, layers stacked.
      tokenizer: its `bert_jax.data.tokenizer.Tokenizer`.
      labels: names of the classifier's labels.
      report: lines that say what was loaded and what was not.
      facts: what its fine-tuning task says of itself (`bert_jax.tasks.Task.facts`), if that is known.
    """

    spec: ModelSpec
    params: dict[str, Any]
    tokenizer: tokenizer_lib.Tokenizer
    labels: tuple[str, ...]
    report: list[str]
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def load(path: epath.PathLike) -> tuple[Model, dict[str, Any], tokenizer_lib.Tokenizer]:
    """Opens a model, ready for `model.apply({"params": params}, {"tokens": ids}, method="hidden")`.

    Args:
      path: a run's workdir, a model directory that `bert_jax.convert` wrote, a Hugging Face directory, or
        one with a TensorFlow 1 checkpoint of BERT or ALBERT; local or gs://.

    Returns:
      The model with the heads that the files hold, its parameters (nested dicts of float32 arrays),
      and its tokenizer.

    Raises:
      ModelDirectoryError: the path holds no model.
      ValueError: the model, its checkpoint or its vocabulary cannot be read.
    """
    source = read(path)
    return Model(source.spec), jax.tree.map(jnp.asarray, source.params), source.tokenizer


def read(path: epath.PathLike) -> Source:
    """Reads a model's description, parameters and tokenizer.

    Of a run it reads the best checkpoint, or the newest where evaluation chose none; of a search that has
    ended (`sweep`), its best member.

    Args:
      path: as in `load`.

    Raises:
      As `load`.
    """
    folder = epath.Path(path).expanduser()
    if not folder.is_dir():
        raise ModelDirectoryError(f"{path} is no directory: name a workdir or a model's directory")
    best = workdir.of_model(folder)
    if best != folder:
        logging.info("%s is a search: its best member, %s, is opened", path, best)
        folder = best
    if not (folder / workdir.CHECKPOINTS).is_dir():  # a run's is of this machine
        paths.refuse_links_out(folder)
    if (folder / workdir.MODEL).exists():
        source = _native(folder) if (folder / native.WEIGHTS).exists() else _run(folder)
    elif (folder / "config.json").exists() and any((folder / n).exists() for n in huggingface_files.WEIGHTS):
        config = folder / "config.json"
        huggingface.family_of(huggingface_files.read_json(config), str(config))  # before its vocabulary is
        source = _of_another(folder, huggingface.read)
    elif tensorflow1.is_one(folder):
        source = _of_another(folder, tensorflow1.read)
    else:
        mend = ""
        if (folder / "members").is_dir():
            mend = f"; it is a search without a result, name one of its members, such as {folder}/members/0"
        raise ModelDirectoryError(
            f"{path} holds no model: neither model.json with checkpoints/ (a run that has saved) or "
            "model.safetensors, nor config.json with model.safetensors or pytorch_model.bin (Hugging Face), "
            f"nor bert_config.json or albert_config.json with a checkpoint (TensorFlow 1){mend}"
        )
    if source.tokenizer.vocab_size > source.spec.vocab_size:
        raise ModelDirectoryError(
            f"{path}: its vocabulary has {source.tokenizer.vocab_size} tokens and its model "
            f"{source.spec.vocab_size}: they do not belong together"
        )
    logging.info("%s: %s", path, "; ".join(source.report))
    return source


def _run(folder: epath.Path) -> Source:
    spec, labels = spec_lib.from_json((folder / workdir.MODEL).read_bytes(), str(folder / workdir.MODEL))
    params = checkpoint.read_params(folder / workdir.CHECKPOINTS, "best")
    report = ["loaded: the best checkpoint, or the newest where evaluation chose none"]
    tokenizer = tokenizer_lib.load(folder / workdir.TOKENIZER)
    return Source(spec, params, tokenizer, labels, report, workdir.read_facts(folder))


def _native(folder: epath.Path) -> Source:
    spec, params, labels = native.read(folder)
    report = ["loaded: a model directory"]
    tokenizer = tokenizer_lib.load(folder / workdir.TOKENIZER)
    return Source(spec, params, tokenizer, labels, report, workdir.read_facts(folder))


def _of_another(folder: epath.Path, read: Callable[[epath.Path, int], huggingface.Read]) -> Source:
    tokenizer = tokenizer_lib.load(folder)
    spec, params, labels, report = read(folder, tokenizer.mask_id)
    return Source(spec, params, tokenizer, labels, report)
