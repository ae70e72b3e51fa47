"""Reads model directories in Hugging Face's layout, by the table of the family that config.json names.

Arrays that no table names are left out and reported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from etils import epath

from bert_jax.interop.families.table import Entry, Family, Tensors
from bert_jax.interop.huggingface_config import family_of, read_labels, read_spec
from bert_jax.interop.huggingface_files import HuggingFaceError, read_json, read_tensors
from bert_jax.models.spec import ModelSpec
from bert_jax.trees import nested

# The class that a head on labels belongs to: which of them an array named "classifier" is of, its class says.
_LABEL_HEADS = {
    "classifier": "ForSequenceClassification",
    "token classifier": "ForTokenClassification",
    "span head": "ForQuestionAnswering",
}
_POOLER = "pooler/dense/kernel"

Read = tuple[ModelSpec, dict[str, Any], tuple[str, ...], list[str]]


def read(directory: epath.PathLike, mask_id: int) -> Read:
    """Reads a model: the encoder and those heads that the files hold.

    Args:
      directory: holds config.json, and model.safetensors, pytorch_model.bin or an index of several such
        files; local or gs://.
      mask_id: the tokenizer's mask token.

    Returns:
      As `assemble`.

    Raises:
      HuggingFaceError: the model is none that is read here, or an array is missing or misshapen.
    """
    folder = epath.Path(directory)
    config = read_json(folder / "config.json")
    family = family_of(config, str(folder / "config.json"))  # before anything large is read
    tensors, ignored = read_tensors(folder)
    return assemble(family, config, tensors, ignored, mask_id, str(folder))


def assemble(
    family: Family,
    config: Mapping[str, Any],
    stored: Tensors,
    ignored: Sequence[str],
    mask_id: int,
    origin: str,
) -> Read:
    """Makes a model of a family's arrays.

    Keys may have the family's prefix or not, and LayerNorms their old names gamma and beta. The decoder's
    bias stands for the token head's where that is missing.

    Args:
      family: whose table names the arrays.
      config: the content of config.json.
      stored: float32 arrays by key.
      ignored: keys of arrays that were not read, for the report.
      mask_id: the tokenizer's mask token.
      origin: where they are from, for messages.

    Returns:
      The spec, the parameters as nested dicts of float32 arrays, the names of the classifier's labels,
      and lines that say what was loaded, left out, and is not there.

    Raises:
      HuggingFaceError: the config is none of a model that is read here, or an array is missing or misshapen.
    """
    spec = read_spec(family, config, mask_id, f"{origin}/config.json")
    names = {_plain(key, family): key for key in stored}
    tensors = family.prepared({plain: stored[key] for plain, key in names.items()}, config, spec)

    layers = range(1 if spec.share_layers else spec.layers)
    if len(layers) > len(tensors):  # before as many names are made
        last = family.layer_key.format(layers[-1])
        raise HuggingFaceError(
            f"{origin}: {last}* is missing: config.json asks for {len(layers)} layers, and the files hold "
            f"{len(tensors)} arrays: they are incomplete, or belong to another config.json"
        )
    body = [(entry, "") for entry in family.body(spec)]
    layer = [
        (entry, family.layer_key.format(i))
        for i in layers
        for entry in family.layer(spec)
        if i > 0 or entry.in_first
    ]
    keys = [before + entry.key for entry, before in [*body, *layer]]
    missing = [key for key in keys if key not in tensors]
    if missing:
        raise HuggingFaceError(
            f"{origin}: {missing[0]} is missing, the first of {len(missing)} missing of the encoder's "
            f"{len(keys)} arrays: the files are incomplete, or belong to another config.json"
        )
    _untie(family, spec, tensors, origin)
    considered, present = _heads(family, spec, tensors, config.get("architectures") or [], origin)
    counts = {head: _rows(present[head], tensors) for head in present}
    labels: tuple[str, ...] = ()
    for head in ("classifier", "token classifier"):
        if head in present:
            labels = read_labels(config, counts[head], origin)
    spec = dataclasses.replace(
        spec,
        has_mlm="token head" in present,
        has_nsp="next-sentence head" in present or "sentence-order head" in present,
        has_rtd="replaced-token head" in present,
        has_pooler="pooler" in present,
        has_span="span head" in present,
        labels=counts.get("classifier", 0),
        token_labels=counts.get("token classifier", 0),
    )
    reason = family.reason(spec)
    if reason:
        raise HuggingFaceError(f"{origin}: {reason}: it cannot be read")

    flat: dict[str, Any] = {}
    taken = set()
    for entry, before in [*body, *((entry, "") for entries in present.values() for entry in entries)]:
        taken.add(before + entry.key)
        for path, part in zip(entry.paths, _read(entry, before, tensors, spec, origin), strict=True):
            flat[path] = part
    for entry in family.layer(spec):
        stacks = []
        for i in layers:
            before = family.layer_key.format(i)
            taken.add(before + entry.key)
            absent = i == 0 and not entry.in_first
            stacks.append(_absent(entry, spec) if absent else _read(entry, before, tensors, spec, origin))
        for path, parts in zip(entry.paths, zip(*stacks, strict=True), strict=True):
            if spec.share_layers:
                flat[f"encoder/shared_layer/{path}"] = parts[0]
            else:
                flat[f"encoder/layers/{path}"] = np.stack(parts)
    _check_computed(family, spec, tensors, origin)
    taken |= set(family.computed(spec))
    left = [names.get(key, key) for key in tensors if key not in taken]

    report = [f"loaded: encoder of {spec.layers} layers", *(f"loaded: {head}" for head in present)]
    report += [f"not in the files: {head}" for head in considered if head not in present]
    report += [f"left out: {key}" for key in sorted([*left, *ignored])]
    return spec, nested(flat), labels, report


def _plain(key: str, family: Family) -> str:
    """Returns a key without the prefix, with LayerNorms' new names, and as the table has it."""
    key = key.removeprefix(family.prefix)
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if key.endswith(f"LayerNorm{old}"):
            key = key.removesuffix(old) + new
    return key


def _untie(family: Family, spec: ModelSpec, tensors: Tensors, origin: str) -> None:
    """Takes out what the decoder shares: its bias under another name, and the word table."""
    for other, key in family.aliases.items():
        if other in tensors:
            tensors.setdefault(key, tensors[other])
            del tensors[other]
    matrix = tensors.pop(family.decoder, None)
    word = next(entry.key for entry in family.body(spec) if entry.paths == ("encoder/word",))
    if matrix is not None and not np.array_equal(matrix, tensors[word]):
        raise HuggingFaceError(
            f"{origin}: {family.decoder} is not the word table: only tied decoders can be read"
        )


def _heads(
    family: Family, spec: ModelSpec, tensors: Tensors, classes: Sequence[Any], origin: str
) -> tuple[list[str], dict[str, tuple[Entry, ...]]]:
    """Returns the heads that were looked for, and the entries of those that are there, all of each."""
    heads = dict(family.heads(spec))
    keys = {head: {entry.key for entry in entries} for head, entries in heads.items()}
    for head, suffix in _LABEL_HEADS.items():
        of_another = classes and not any(str(name).endswith(suffix) for name in classes)
        # Without a class a matrix that two heads could be of is the first one's.
        earlier = list(heads)[: list(heads).index(head)] if head in heads else []
        if head in heads and (of_another or (not classes and any(keys[head] <= keys[e] for e in earlier))):
            del heads[head]
    present = {}
    for head, entries in heads.items():
        own = keys[head] - set().union(*(keys[other] for other in heads if other != head))
        if not own & set(tensors):
            continue
        absent = [entry.key for entry in entries if entry.key not in tensors]
        if absent:
            raise HuggingFaceError(f"{origin}: {absent[0]} is missing, though others of the {head} are there")
        present[head] = entries
    paths = {head: {path for entry in entries for path in entry.paths} for head, entries in present.items()}
    if any(_POOLER in paths[head] for head in present if head != "pooler"):
        present.pop("pooler", None)  # the classifier has its own
    for head in ("next-sentence head", "sentence-order head", "classifier"):
        if head in present and _POOLER not in paths[head] and "pooler" not in present:
            key = next(entry.key for entry in family.heads(spec)["pooler"])
            raise HuggingFaceError(f"{origin}: {key} is missing, which the {head} needs")
    return list(heads), present


def _rows(entries: Sequence[Entry], tensors: Tensors) -> int:
    """Returns how many labels a head has; 0 for one without labels."""
    of_labels = [entry.key for entry in entries if entry.shape[0] in "CG"]
    return len(tensors[of_labels[0]]) if of_labels else 0


def _read(entry: Entry, before: str, tensors: Tensors, spec: ModelSpec, origin: str) -> list[np.ndarray]:
    """Returns the parts of an array if its shape is what config.json asks for."""
    key, expected = before + entry.key, entry.sizes(spec)
    x = tensors[key]
    if x.shape != expected:
        raise HuggingFaceError(
            f"{origin}: {key} has the shape {x.shape}, and config.json asks for {expected}: they belong to "
            "different models"
        )
    return entry.read(x, spec)


def _absent(entry: Entry, spec: ModelSpec) -> list[np.ndarray]:
    """Returns what stands where layer 0 has no norm: one that is not used."""
    make = np.zeros if entry.key.endswith("bias") else np.ones
    return [make(entry.sizes(spec), np.float32)]


def _check_computed(family: Family, spec: ModelSpec, tensors: Tensors, origin: str) -> None:
    for key, expected in family.computed(spec).items():
        if key in tensors and (
            tensors[key].shape != expected.shape or not np.allclose(tensors[key], expected, atol=1e-4)
        ):
            raise HuggingFaceError(
                f"{origin}: {key} is not the usual one, which is computed here: it cannot be read"
            )
