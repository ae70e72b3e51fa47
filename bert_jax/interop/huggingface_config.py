"""The config.json of a Hugging Face directory: to ModelSpec, and from it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp

from bert_jax import config_rules
from bert_jax.interop.families import FAMILIES
from bert_jax.interop.families.table import ACTIVATIONS, REQUIRED, Family, Field
from bert_jax.interop.huggingface_files import HuggingFaceError
from bert_jax.models.spec import ModelSpec


def family_of(config: Mapping[str, Any], origin: str) -> Family:
    """Returns the family of a config.json; raises HuggingFaceError where it is none that is read here."""
    kind = config.get("model_type")
    classes = config.get("architectures") or []
    if not isinstance(classes, list):
        raise HuggingFaceError(f"{origin}: architectures = {classes!r}: it must be a list of names")
    if kind is None and any(str(name).startswith("Bert") for name in classes):
        kind = "bert"
    if isinstance(kind, str) and kind in FAMILIES:
        return FAMILIES[kind]
    found = "has no model_type" if kind is None else f"has model_type {kind!r}"
    why = ""
    if kind in ("xlm-roberta", "camembert"):
        why = ": its encoder is RoBERTa's, but its vocabulary is a Unigram one numbered in its own way"
    known = ", ".join(f'"{name}"' for name in FAMILIES)
    raise HuggingFaceError(f"{origin} {found}{why}: only {known} can be read")


def read_spec(family: Family, config: Mapping[str, Any], mask_id: int, origin: str) -> ModelSpec:
    """Returns the spec of a config.json, heads aside; what it leaves out has the family's own value.

    Raises:
      HuggingFaceError: a value is missing, is none, or is of another model than is read here.
    """
    for key, wanted in family.expected.items():
        value = config.get(key)
        if value is not None and value != wanted:
            raise HuggingFaceError(f"{origin}: {key} = {value!r}: only {wanted!r} can be read")
    values = {name: allowed[0] for name, allowed in family.fixed.items() if allowed}
    values |= {field.field: _value(field, config, origin) for field in family.fields}
    try:
        values = family.values(values, config)
    except ValueError as error:
        raise HuggingFaceError(f"{origin}: {error}") from None
    size, heads = values["hidden_size"], values["heads"]
    named = {field.field: f"{field.key} = {values[field.field]}" for field in family.fields}
    if size % heads:
        raise HuggingFaceError(f"{origin}: {named['hidden_size']} is not a multiple of {named['heads']}")
    if values.get("position") == "rotary" and size // heads % 2:
        raise HuggingFaceError(
            f"{origin}: {named['hidden_size']} and {named['heads']} make heads of size {size // heads}: "
            "rotary positions need an even one"
        )
    if values["max_positions"] < 1:
        raise HuggingFaceError(f"{origin}: max_position_embeddings leaves no positions")
    if values.get("classifier_dropout") is None:
        values["classifier_dropout"] = values["dropout"]
    if values.get("embedding_size") in (None, size):
        values["embedding_size"] = 0
    return ModelSpec(mask_id=mask_id, dtype=jnp.float32, **values)


def read_labels(config: Mapping[str, Any], count: int, origin: str) -> tuple[str, ...]:
    """Returns the names of the classifier's labels, LABEL_0 and so on where config.json has none."""
    names = config.get("id2label") or {str(i): f"LABEL_{i}" for i in range(count)}
    if not isinstance(names, dict):
        raise HuggingFaceError(f"{origin}: id2label = {names!r}: it must be an object")
    if sorted(names) != sorted(str(i) for i in range(count)):
        raise HuggingFaceError(
            f"{origin}: classifier.weight has {count} rows, and id2label of config.json "
            f"names {len(names)} labels"
        )
    return tuple(str(names[str(i)]) for i in range(count))


def write_config(
    family: Family, spec: ModelSpec, tokenizer: Any, labels: tuple[str, ...], chosen: str
) -> dict[str, Any]:
    """Returns the config.json of a model.

    Args:
      family: that it is written as.
      spec, tokenizer, labels: the model.
      chosen: the name of its class.
    """
    names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    values = {field.key: getattr(spec, field.field) for field in family.fields}
    values |= {field.key: names[spec.activation] for field in family.fields if field.field == "activation"}
    values |= {field.key: spec.embedded_size for field in family.fields if field.field == "embedding_size"}
    config = {
        "architectures": [chosen],
        "model_type": family.name,
        **values,
        **family.expected,
        **family.extra(spec),
        **{key: int(getattr(tokenizer, role)) for key, role in family.tokens.items()},
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    if spec.labels or spec.token_labels:
        given = labels or tuple(f"LABEL_{i}" for i in range(spec.labels or spec.token_labels))
        config["id2label"] = {str(i): name for i, name in enumerate(given)}
        config["label2id"] = {name: i for i, name in enumerate(given)}
    return config


def _value(field: Field, config: Mapping[str, Any], origin: str) -> Any:
    """Returns a field's value; raises HuggingFaceError where it is none."""
    value = config.get(field.key, field.default)
    if value is None and field.default is None:
        return None
    if field.field == "activation":
        if not isinstance(value, str) or value not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise HuggingFaceError(f"{origin}: {field.key} = {value!r}: it must be one of {known}")
        return ACTIVATIONS[value]
    whole = isinstance(getattr(ModelSpec, field.field, 1), int)
    is_one = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    _, most = config_rules.RANGES.get(f"model.{field.field}", (None, None))
    fits = is_one and field.least <= value <= sys.float_info.max and (most is None or value <= most)
    if value is REQUIRED or not fits:
        shown = "is missing" if value is REQUIRED else f"= {value!r}"
        rule = f"{'a whole number' if whole else 'a number'}, at least {field.least}"
        rule += "" if most is None else f" and at most {most}"
        raise HuggingFaceError(f"{origin}: {field.key} {shown}: it must be {rule}")
    return value
