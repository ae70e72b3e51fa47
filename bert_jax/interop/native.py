"""Model directories of this project's own: all that is needed to run a model elsewhere, and no run.

They hold

    model.json           what the model is, and its labels
    task.json            of a fine-tuned model: what its task says of itself
    model.safetensors    its parameters by their path, such as "encoder/word", at the true vocabulary size
    tokenizer/           its vocabulary
    README.md            what is known of it
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from etils import epath
from flax import linen as nn

from bert_jax import workdir
from bert_jax.models import spec as spec_lib
from bert_jax.models.model import Model
from bert_jax.models.spec import ModelSpec
from bert_jax.trees import named, nested

WEIGHTS = "model.safetensors"
_FORMAT = {"format": "bert_jax", "version": "1"}
# The axis that counts words, of the arrays that have one.
_VOCABULARY = {"encoder/word": 0, "token_head/bias": 0, "token_head/kernel": 1}


class NativeError(ValueError):
    """A model directory that cannot be read; the message names what is wrong and the mend."""


def write(
    directory: epath.Path,
    spec: ModelSpec,
    params: Mapping[str, Any],
    tokenizer: Any,
    labels: tuple[str, ...],
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Writes a model directory, without README.md.

    Args:
      directory: made if it is not there.
      spec, params, tokenizer, labels: the model.
      facts: of its task, if there was one.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / workdir.MODEL).write_text(spec_lib.to_json(spec, labels))
    workdir.write_facts(directory, facts or {})
    flat = unpadded(spec, params)
    (directory / WEIGHTS).write_bytes(safetensors.numpy.save(flat, metadata=_FORMAT))
    tokenizer.save(directory / workdir.TOKENIZER)


def unpadded(spec: ModelSpec, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Returns a model's parameters by their path, float32, at the true vocabulary size."""
    return {path: _cut(path, np.asarray(x, np.float32), spec) for path, x in named(params)}


def read(directory: epath.Path) -> tuple[ModelSpec, dict[str, Any], tuple[str, ...]]:
    """Reads what `write` wrote, tokenizer aside: spec, parameters and labels.

    Raises:
      NativeError: a file is damaged, or its arrays are not those of model.json.
    """
    spec, labels = spec_lib.from_json(
        (directory / workdir.MODEL).read_bytes(), str(directory / workdir.MODEL)
    )
    file = directory / WEIGHTS
    try:
        stored = safetensors.numpy.load(file.read_bytes())
    except safetensors.SafetensorError as error:
        raise NativeError(f"{file} is damaged: {error}: copy it anew") from error
    wanted = {path: x.shape for path, x in named(_abstract(spec))}
    flat = {path: _filled(path, x, spec) for path, x in stored.items()}
    for path in sorted(wanted.keys() | flat.keys()):
        found = flat[path].shape if path in flat else "none"
        if found != wanted.get(path, "none"):
            raise NativeError(
                f"{file}: {path} has the shape {found}, and model.json asks for {wanted.get(path, 'none')}: "
                "the files belong to different models"
            )
    return spec, nested(flat), labels


def _abstract(spec: ModelSpec) -> Mapping[str, Any]:
    """Returns the shapes of a model's parameters."""
    some = jax.ShapeDtypeStruct((1, 1), jnp.int32)
    batch = {"tokens": some, "segment_ids": some}
    streams = {name: jax.random.key(0) for name in ("params", "sample")}
    if spec.has_generator:
        weights = jax.ShapeDtypeStruct((1, 1), jnp.float32)
        batch |= {"mlm_positions": some, "mlm_labels": some, "mlm_weights": weights}
    made = jax.eval_shape(Model(dataclasses.replace(spec, scan=True)).init, streams, batch)
    return nn.unbox(made)["params"]


def _axis(path: str) -> int | None:
    return _VOCABULARY.get(path.removeprefix("generator/"))


def _cut(path: str, x: np.ndarray, spec: ModelSpec) -> np.ndarray:
    axis = _axis(path)
    return x if axis is None else np.ascontiguousarray(np.take(x, range(spec.vocab_size), axis))


def _filled(path: str, x: np.ndarray, spec: ModelSpec) -> np.ndarray:
    """Returns the array as float32, with rows of zeros, which nothing sees, up to the padded size."""
    axis = _axis(path)
    x = x.astype(np.float32)
    if axis is None or x.ndim <= axis or x.shape[axis] != spec.vocab_size:
        return x
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, spec.padded_vocab_size - spec.vocab_size)
    return np.pad(x, widths)
