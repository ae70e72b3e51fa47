"""What a config leaves to the models that it names: the shape of `init_from`, and the tokenizer."""

from __future__ import annotations

from typing import Any

from absl import logging
from etils import epath
from ml_collections import ConfigDict

from bert_jax import config as config_lib
from bert_jax import workdir as workdir_lib
from bert_jax.config import ConfigError
from bert_jax.interop import load

# The run's own, whatever model it starts from; the rest of the group is what a checkpoint decides.
_OF_THE_RUN = ("dropout", "attention_dropout", "init_std", "scan", "remat", "dtype",
               "attention_kernel", "attention_block")  # fmt: skip


def complete(
    config: ConfigDict, found: ConfigDict | None
) -> tuple[ConfigDict, load.Source | None, load.Source | None]:
    """Returns the config with the model and tokenizer that `init_from` decides, its weights, the teacher.

    Args:
      config: as asked.
      found: of a run that is continued: it holds what was decided then, and the weights that the
        run began with are not read again.
    """
    config = config.copy_and_resolve_references()
    teacher = None
    taught_by = config.objective.distill.teacher
    if taught_by and not config.task.name:
        teacher = _read_teacher(config)
        config.data.tokenizer = config.data.tokenizer or workdir_lib.tokenizer_of(taught_by)
    if not config.init_from:
        return config, None, teacher
    others = config.data.extend_vocab or config.data.tokenizer  # then the table is as long as they need
    # Pretraining may go on under another mask: an encoder's weights start a left-to-right model too.
    own = _OF_THE_RUN if config.task.name else (*_OF_THE_RUN, "mask")
    if config.task.name == "seq2seq":
        own = (*own, "mask")
    if config.task.name and config.model.pooling == "attention":
        own = (*own, "pooling")  # learnt by the task, whatever the model had
    if found is not None and found.init_from == config.init_from:
        for key in config.model:
            if key not in own:
                config.model[key] = found.model[key]
        config.data.tokenizer = config.data.tokenizer or found.data.tokenizer
        return config, None, teacher
    source = load.read(config.init_from)
    for key in config.model:
        if key not in own:
            config.model[key] = getattr(source.spec, key)
    if others and not config.task.name:
        config.model.vocab_size = 0
    config.data.tokenizer = config.data.tokenizer or workdir_lib.tokenizer_of(config.init_from)
    logging.info(
        "the model is that of %s: %s, %d layers, hidden size %d",
        config.init_from, source.spec.kind, source.spec.layers, source.spec.hidden_size,
    )  # fmt: skip
    return config, source, teacher


def _read_teacher(config: ConfigDict) -> load.Source:
    name = config.objective.distill.teacher
    teacher = load.read(name)
    spec = teacher.spec
    if not spec.has_mlm or spec.kind != "encoder" or spec.mask != "full":
        raise ConfigError(
            f"objective.distill.teacher = {name!r} is no masked language model, with whose guesses a "
            "student's could be compared: name one that has a token head"
        )
    if config.objective.distill.cosine and spec.hidden_size != config.model.hidden_size:
        raise ConfigError(
            f"objective.distill.cosine compares states of one size: model.hidden_size = "
            f"{config.model.hidden_size} and the teacher's is {spec.hidden_size}; set it to 0"
        )
    return teacher


def finished(config: ConfigDict, workdir: epath.PathLike) -> dict[str, Any] | None:
    """Returns the result of the run in a workdir, if it has ended and is that of this config."""
    found, result = workdir_lib.read_config(workdir), workdir_lib.read_result(workdir)
    if found is None or result is None:
        return None
    asked, _, _ = complete(config, found)
    return None if config_lib.differing_keys(asked, found) else result
