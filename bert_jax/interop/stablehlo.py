"""A model's forward pass, compiled to StableHLO with its weights: a server runs it without this package.

A directory of it holds

    forward.jax_export   what `jax.export.deserialize` reads; `.call(inputs)` then runs it
    signature.json       its inputs, its outputs, its labels
    tokenizer/           the vocabulary
    README.md            what is known of the model
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from etils import epath
from jax import export

from bert_jax import workdir
from bert_jax.interop.export import ExportError
from bert_jax.models.model import Model
from bert_jax.models.spec import ModelSpec

FORWARD = "forward.jax_export"
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_FORMAT = 1  # version of signature.json
_LARGEST = 2**31 - 2**24  # bytes: what holds the program has lengths of 31 bits


def write(
    directory: epath.Path,
    spec: ModelSpec,
    params: Mapping[str, Any],
    tokenizer: Any,
    labels: tuple[str, ...],
    *,
    outputs: Sequence[str] = (),
    seq_len: int = 0,
    platforms: Sequence[str] = PLATFORMS,
) -> str:
    """Writes the forward pass, without README.md.

    Its inputs are (B, S) int32 by name: `tokens`; `segment_ids`, 1 where there is text and 0 in the padding;
    `type_ids`; `prefix`, 1 in the source, of a model with that mask; `marked_positions` and `marked_ends`,
    (B, marked) int32, of one that reads marked tokens or spans. B is any number.

    Args:
      directory: made if it is not there.
      spec, params, tokenizer, labels: the model.
      outputs: names of what is computed, of those that the model has; () is all.
      seq_len: S; 0 lets it be any number up to the model's longest.
      platforms: that it is compiled for when it is loaded: "cpu", "cuda", "rocm" and "tpu".

    Returns:
      A line that says what can be asked.

    Raises:
      ExportError: an output that the model does not have, or a length beyond its positions; or weights
        beyond 2 GiB.
    """
    # A replaced-token model serves without its generator, whose draws only training needs.
    spec = dataclasses.replace(spec, has_mlm=spec.has_mlm and not spec.has_generator, has_generator=False)
    params = {name: tree for name, tree in params.items() if name != "generator"}
    if not spec.has_mlm:
        params.pop("token_head", None)
    if seq_len > spec.max_positions:
        raise ExportError(f"--seq_len={seq_len}: the model has {spec.max_positions} positions")
    size = sum(x.nbytes for x in jax.tree.leaves(params))
    if size > _LARGEST:
        raise ExportError(
            f"the weights have {size / 2**30:.1f} GiB, and a StableHLO program holds less than 2: "
            "take --format=native or hf"
        )
    if not seq_len:  # whether rows are long enough for blocks is not known yet
        spec = dataclasses.replace(spec, attention_kernel="dense")
    scope = export.SymbolicScope(["B >= 1", *(() if seq_len else ("S >= 1", f"S <= {spec.max_positions}"))])
    rows, length = export.symbolic_shape(f"B, {seq_len or 'S'}", scope=scope)
    inputs = {
        name: jax.ShapeDtypeStruct((rows, width), jnp.int32) for name, width in _inputs(spec, length).items()
    }
    forward = _forward(spec, jax.tree.map(jnp.asarray, params))
    known = jax.eval_shape(forward, inputs)
    wrong = [name for name in outputs if name not in known]
    if wrong:
        raise ExportError(f"--outputs={','.join(wrong)}: the model has {', '.join(known)}")

    def asked(batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        found = forward(batch)
        return {name: found[name] for name in outputs or known}

    exported = export.export(jax.jit(asked), platforms=tuple(platforms))(inputs)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / FORWARD).write_bytes(exported.serialize())
    given = jax.tree.unflatten(exported.out_tree, exported.out_avals)
    signature = {
        "version": _FORMAT,
        "jax": jax.__version__,
        "platforms": list(platforms),
        "inputs": {name: _described(x) for name, x in inputs.items()},
        "outputs": {name: _described(x) for name, x in given.items()},
        "longest": seq_len or spec.max_positions,
        "pad_id": tokenizer.pad_id,
        "labels": list(labels),
    }
    (directory / "signature.json").write_text(json.dumps(signature, indent=2) + "\n")
    tokenizer.save(directory / workdir.TOKENIZER)
    return f"inputs {', '.join(inputs)}; outputs {', '.join(given)}; for {', '.join(platforms)}"


def _inputs(spec: ModelSpec, length: Any) -> dict[str, Any]:
    """Returns the names of the inputs and their widths."""
    widths = dict.fromkeys(("tokens", "segment_ids", "type_ids"), length)
    if spec.mask == "prefix":
        widths["prefix"] = length
    if spec.marked:
        widths |= dict.fromkeys(("marked_positions", "marked_ends"), spec.marked)
    return widths


def _described(x: Any) -> dict[str, Any]:
    return {"dtype": str(x.dtype), "shape": [d if isinstance(d, int) else str(d) for d in x.shape]}


def _forward(spec: ModelSpec, params: Mapping[str, Any]) -> Any:
    """Returns the function from a batch to all that the model's heads say of it."""
    model = Model(spec)

    def forward(batch: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        found = model.apply({"params": params}, batch)
        if spec.pools:
            found["pooled"] = model.apply(
                {"params": params}, found["hidden"], batch["segment_ids"], method="pooled"
            )
        return {
            name: x[..., : spec.vocab_size] if x.shape[-1:] == (spec.padded_vocab_size,) else x
            for name, x in found.items()
            if isinstance(x, jax.Array)  # a CRF's chain is for training
        }

    return forward
