"""From a config to what the loop needs: data, model, objectives, step."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np
from absl import logging
from etils import epath
from jax.experimental import multihost_utils
from ml_collections import ConfigDict

from bert_jax import config as config_lib
from bert_jax import objectives, optimizer, sharding, tasks
from bert_jax import step as step_lib
from bert_jax import workdir as workdir_lib
from bert_jax.config import ConfigError
from bert_jax.data import pipeline, prepare, shards
from bert_jax.data import tokenizer as tokenizers
from bert_jax.interop import load
from bert_jax.models import spec as spec_lib
from bert_jax.models.model import Model

# What a checkpoint decides about its model; the rest of the group is the run's own.
_ARCHITECTURE = ("kind", "tta_query", "vocab_size", "hidden_size", "layers", "heads", "feed_forward_size",
                 "max_positions", "segments", "position", "rope_theta", "rope_layout", "norm", "norm_eps",
                 "activation", "mlm_head", "nsp_head")  # fmt: skip

_MUCH_UNKNOWN = 0.05  # share of [UNK] that is said aloud


@dataclasses.dataclass
class Run:
    """A run, ready to start.

    Attributes:
      config: the config, completed by what `init_from` decides.
      setup: what the steps are made of.
      tokenizer: the run's.
      train, eval: their examples.
      steps: length of the run.
      task: the fine-tuning task; None in pretraining.
      source: the weights that the run starts from; None where it starts from random ones.
    """

    config: ConfigDict
    setup: step_lib.Setup
    tokenizer: Any
    train: Any
    eval: Any
    steps: int
    task: Any
    source: load.Source | None

    @property
    def eval_batch_size(self) -> int:
        return self.config.train.eval_batch_size or self.config.train.batch_size

    def initial_state(self, sample: dict[str, np.ndarray]) -> step_lib.State:
        """Returns the state of step 0, with the weights of `init_from` where it has them."""
        state = step_lib.create_state(self.setup, sample, self.config.seed)
        if self.source is None:
            return state
        params = adopt(state.params, self.source.params, self.config.init_from)
        return state.replace(params=params)


def complete(config: ConfigDict, found: ConfigDict | None) -> tuple[ConfigDict, load.Source | None]:
    """Returns the config with the model and tokenizer that `init_from` decides, and its weights.

    Args:
      config: as asked.
      found: of a run that is continued: it holds what was decided then, and the weights that the
        run began with are not read again.
    """
    config = config.copy_and_resolve_references()
    if not config.init_from:
        return config, None
    if found is not None and found.init_from == config.init_from:
        for key in _ARCHITECTURE:
            config.model[key] = found.model[key]
        config.data.tokenizer = config.data.tokenizer or found.data.tokenizer
        return config, None
    source = load.read(config.init_from)
    for key in _ARCHITECTURE:
        config.model[key] = getattr(source.spec, key)
    folder = epath.Path(config.init_from)
    own = folder / workdir_lib.TOKENIZER
    config.data.tokenizer = config.data.tokenizer or str(own if own.exists() else folder)
    logging.info(
        "the model is that of %s: %s, %d layers, hidden size %d",
        config.init_from, source.spec.kind, source.spec.layers, source.spec.hidden_size,
    )  # fmt: skip
    config_lib.validate(config)
    return config, source


def build(config: ConfigDict, source: load.Source | None) -> Run:
    """Reads or prepares the data and makes the step's parts.

    Args:
      config: complete.
      source: the weights that the run starts from.

    Raises:
      ValueError: data, tokenizer, model or mesh do not fit each other; the message names the key.
    """
    mesh = sharding.make_mesh(config.mesh)
    batch_size = config.train.batch_size
    eval_batch_size = config.train.eval_batch_size or batch_size
    if config.task.name:
        if not config.data.tokenizer:
            raise ConfigError(
                f'task.name = "{config.task.name}" needs a pretrained model, init_from, or a vocabulary, '
                "data.tokenizer"
            )
        tokenizer = tokenizers.load(config.data.tokenizer, config.data.lowercase, config.data.strip_accents)
        task = tasks.make(config, tokenizer)
        train, evaluation = task.train, task.eval
        goals: tuple[Any, ...] = (task.objective,)
        heads = {"has_mlm": False, "labels": len(task.labels), "classifier_dropout": config.task.dropout}
    else:
        task = None
        folder = _prepared(config)
        tokenizer = tokenizers.load(
            folder / workdir_lib.TOKENIZER, config.data.lowercase, config.data.strip_accents
        )
        text = shards.open(folder, "train", config.data.cache_dir)
        held_out = shards.open(folder, "eval", config.data.cache_dir)
        goals = tuple(objectives.from_config(config, tokenizer, text.unigram))
        train, evaluation = (
            pipeline.Examples(part, tokenizer, config, objectives=goals, batch_size=size, train=training)
            for part, size, training in ((text, batch_size, True), (held_out, eval_batch_size, False))
        )
        logging.info(
            "text: %s training tokens in %s examples, %s evaluation tokens in %s; vocabulary %s",
            *(f"{n:,}" for n in (text.num_tokens, train.num_examples, held_out.num_tokens,
                                 evaluation.num_examples, tokenizer.vocab_size)),
        )  # fmt: skip
        unknown = int(text.unigram[tokenizer.unk_id]) / text.num_tokens
        if unknown > _MUCH_UNKNOWN:
            logging.warning(
                "%.1f%% of the training tokens are unknown to the vocabulary: it does not fit the text",
                100 * unknown,
            )
        has_mlm = bool(config.objective.mlm.weight or config.objective.tta.weight)
        heads = {"has_mlm": has_mlm, "has_nsp": bool(config.objective.nsp.weight)}
    spec = spec_lib.from_config(
        config.model, vocab_size=tokenizer.vocab_size, mask_id=tokenizer.mask_id, **heads
    )
    sharding.check(config, mesh, spec)
    steps = config.train.steps or math.ceil(config.train.epochs * train.num_examples / batch_size)
    learning_rate = optimizer.schedule(config.optimizer, steps)
    setup = step_lib.Setup(
        model=Model(spec),
        objectives=goals,
        optimizer=optimizer.make(config.optimizer, steps, learning_rate),
        learning_rate=learning_rate,
        mesh=mesh,
        prng=config.train.prng,
        accumulation=config.train.accumulation,
        l2=config.task.l2 if config.task.name else 0.0,
    )
    return Run(config, setup, tokenizer, train, evaluation, steps, task, source)


def _prepared(config: ConfigDict) -> Any:
    """Returns the shard directory; process 0 of several prepares it, the others then find it."""
    if jax.process_count() == 1:
        return prepare.cached(config)
    if jax.process_index() == 0:
        prepare.cached(config)
    multihost_utils.sync_global_devices("bert_jax: text is prepared")
    return prepare.cached(config)


def adopt(params: Any, found: Any, origin: str) -> Any:
    """Returns `params` with each array that `found` has in its place.

    Args:
      params: the run's initial parameters, on their devices.
      found: nested dict of host arrays; what it lacks stays as initialised, and that is said.
      origin: where they come from, for messages.

    Raises:
      ValueError: an array of another shape; the message names it.
    """
    given = {_name(path): array for path, array in jax.tree_util.tree_leaves_with_path(found)}
    fresh, used = [], set()

    def take(path: tuple[Any, ...], param: jax.Array) -> jax.Array:
        name = _name(path)
        if name not in given:
            fresh.append(name)
            return param
        used.add(name)
        if given[name].shape != param.shape:
            raise ValueError(
                f"{origin}: {name} has shape {given[name].shape} and the model's has {param.shape}: "
                "the model group of the config does not fit it"
            )
        host = np.asarray(given[name], param.dtype)
        return jax.make_array_from_callback(host.shape, param.sharding, lambda index: host[index])

    taken = jax.tree_util.tree_map_with_path(take, params)
    logging.info("%s: %d arrays loaded", origin, len(used))
    if fresh:
        logging.info("initialised anew, since %s has none: %s", origin, ", ".join(fresh))
    unused = sorted(set(given) - used)
    if unused:
        logging.info("in %s but not in this model: %s", origin, ", ".join(unused))
    return taken


def _name(path: tuple[Any, ...]) -> str:
    return "/".join(str(getattr(part, "key", part)) for part in path)
