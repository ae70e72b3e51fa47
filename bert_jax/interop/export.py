"""Writes models in Hugging Face's layout, by the same tables that read them.

A model is written as a family only if that family's class computes what the model computes: every
field of the spec that has an effect must be one that the family has.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy
from etils import epath

from bert_jax.interop.families import FAMILIES
from bert_jax.interop.families.table import Entry, Family, Tensors
from bert_jax.interop.huggingface_config import write_config
from bert_jax.models.spec import ModelSpec
from bert_jax.trees import named

GENERATOR = "generator"  # folder of ELECTRA's generator in its discriminator's


class ExportError(ValueError):
    """A model that cannot be written in the layout asked for; the message says why."""


def choose(spec: ModelSpec, pad_id: int, name: str = "") -> Family:
    """Returns the family that a model is written as.

    Args:
      spec: the model.
      pad_id: the tokenizer's padding token.
      name: the family that is asked for; "" takes the first that fits.

    Raises:
      ExportError: the family, or all of them, compute something else; the message says what of the
        nearest.
    """
    if name:
        reason = _unfit(FAMILIES[name], spec, pad_id)
        if reason:
            raise ExportError(f"the model cannot be written as {name}: {reason}")
        return FAMILIES[name]
    reasons = {family.name: _unfit(family, spec, pad_id) for family in FAMILIES.values()}
    fitting = [FAMILIES[known] for known, reason in reasons.items() if reason is None]
    if fitting:
        return fitting[0]
    nearest = _nearest(spec)
    raise ExportError(
        f"no class of transformers computes this model; the nearest is {nearest}: {reasons[nearest]}: "
        "export it by --format=native, or pretrain in a form that goes out, such as that of configs/modern.py"
    )


def write(
    directory: epath.Path,
    spec: ModelSpec,
    params: Mapping[str, Any],
    tokenizer: Any,
    labels: tuple[str, ...],
    family: Family,
) -> tuple[str, list[str]]:
    """Writes config.json, model.safetensors and the tokenizer's files.

    Args:
      directory: made if it is not there. ELECTRA's generator goes to a folder in it.
      spec, params, tokenizer, labels: the model.
      family: of `choose`.

    Returns:
      The name of the class, and the parameters that it has no place for (a pooler beside a token head).

    Raises:
      ExportError: no class of the family has all of the model's heads.
    """
    if spec.has_generator:
        own = {group: tree for group, tree in params.items() if group != "generator"}
        generator = _generator(params)
        small = spec.generator
        write(
            directory / GENERATOR, small, generator, tokenizer, (), choose(small, tokenizer.pad_id, "electra")
        )
        spec, params = dataclasses.replace(spec, has_generator=False), own
    flat = {path: np.asarray(leaf, np.float32) for path, leaf in named(params)}
    chosen, heads, left_out = _class(family, spec, flat)
    directory.mkdir(parents=True, exist_ok=True)
    tensors = _tensors(family, spec, flat, heads, is_base=chosen == family.classes[-1][0])
    content = safetensors.numpy.save(tensors, metadata={"format": "pt"})  # transformers asks for this mark
    (directory / "model.safetensors").write_bytes(content)
    config = write_config(family, spec, tokenizer, labels, chosen)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tokenizer.save_for_transformers(directory, spec.max_positions, family.name)
    return chosen, left_out


def _unfit(family: Family, spec: ModelSpec, pad_id: int) -> str | None:
    """Returns why a family computes something else than a model with this tokenizer, or None."""
    reason = family.unfit(spec)
    if reason:
        return reason
    if spec.position_offset and spec.position_offset != pad_id + 1:
        return (
            f"model.position_offset = {spec.position_offset}, and there it is the padding token's id + 1, "
            f"which is {pad_id + 1} for this vocabulary"
        )
    needed = _needed(spec)
    if any(needed <= set(heads) | {"pooler"} for _, heads in family.classes):
        return None
    return f"it has no class with {' and '.join(sorted(needed))}"


def _needed(spec: ModelSpec) -> set[str]:
    """Returns the heads that the spec has, poolers aside."""
    return {
        head
        for head, there in {
            "token head": spec.has_mlm,
            "sentence-order head" if spec.share_layers else "next-sentence head": spec.has_nsp,
            "detector of wrong tokens": spec.has_spelling,
            "replaced-token head": spec.has_rtd,
            "classifier": spec.labels,
            "token classifier": spec.token_labels,
            "span head": spec.has_span,
        }.items()
        if there
    }


def _nearest(spec: ModelSpec) -> str:
    """Returns the family whose models are most like this one."""
    if spec.norm == "pre":
        return "modernbert"
    if spec.position == "rotary":
        return "roformer"
    if spec.has_rtd:
        return "electra"
    if spec.share_layers:
        return "albert"
    if spec.position_offset:
        return "roberta"
    return "bert" if spec.segments else "distilbert"


def _generator(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the generator's parameters with the tables that it shares with the discriminator."""
    shared = ("word", "position", "segment", "embedding_norm")
    tables = {name: params["encoder"][name] for name in shared if name in params["encoder"]}
    own = params["generator"]
    return {**own, "encoder": {**tables, **own["encoder"]}}


def _class(
    family: Family, spec: ModelSpec, flat: Mapping[str, np.ndarray]
) -> tuple[str, tuple[str, ...], list[str]]:
    """Returns the class whose arrays are the model's, its heads, and what of the model it leaves out.

    Only a pooler may be left out, and the class of least loss is taken.
    """
    tables = family.heads(spec)
    body = _paths(family, spec)
    best = None
    for name, heads in family.classes:
        paths = body | {path for head in heads for entry in tables[head] for path in entry.paths}
        left = sorted(set(flat) - paths)
        lost = [path for path in left if not path.startswith("pooler/")]
        if paths <= set(flat) and not lost and (best is None or len(left) < len(best[2])):
            best = name, heads, left
    if best is None:
        raise ExportError(
            f"no class of {family.name} has the heads {', '.join(sorted(_needed(spec)))} together: "
            "export the model by --format=native"
        )
    return best


def _paths(family: Family, spec: ModelSpec) -> set[str]:
    """Returns the paths of the encoder's parameters."""
    group = "encoder/shared_layer" if spec.share_layers else "encoder/layers"
    layer = {f"{group}/{path}" for entry in family.layer(spec) for path in entry.paths}
    return layer | {path for entry in family.body(spec) for path in entry.paths}


def _tensors(
    family: Family, spec: ModelSpec, flat: Mapping[str, np.ndarray], heads: tuple[str, ...], is_base: bool
) -> Tensors:
    """Returns the arrays of a file, by the keys of its class; tied ones once, as transformers keeps them."""
    prefix = "" if is_base else family.prefix
    tables = family.heads(spec)
    encoder: list[Entry] = [*family.body(spec), *tables.get("pooler", ())]
    tensors = {
        prefix + entry.key: entry.write([flat[path] for path in entry.paths], spec)
        for entry in encoder
        if "pooler" in heads or entry not in tables.get("pooler", ())
    }
    for i in range(1 if spec.share_layers else spec.layers):
        for entry in family.layer(spec):
            if i == 0 and not entry.in_first:
                continue
            if spec.share_layers:
                parts = [flat[f"encoder/shared_layer/{path}"] for path in entry.paths]
            else:
                parts = [flat[f"encoder/layers/{path}"][i] for path in entry.paths]
            tensors[prefix + family.layer_key.format(i) + entry.key] = entry.write(parts, spec)
    tensors |= {prefix + key: value for key, value in family.computed(spec).items()}
    for head in heads:
        if head != "pooler":
            for entry in tables[head]:
                tensors[entry.key] = entry.write([flat[path] for path in entry.paths], spec)
    return tensors
