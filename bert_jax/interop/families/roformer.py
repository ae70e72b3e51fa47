"""RoFormer (Su et al. 2021): BERT with rotary positions, adjacent pairs, and no position table."""

from typing import Any

import numpy as np

from bert_jax.interop.families import bert
from bert_jax.interop.families.table import Config, Family, Field, Tensors, affine
from bert_jax.models.spec import ModelSpec


def _sines(spec: ModelSpec) -> Tensors:
    """Returns the table of sines, then cosines, that the file keeps and that is computed here."""
    exponents = np.arange(0, spec.head_size, 2) / spec.head_size
    angles = np.arange(spec.max_positions)[:, None] / spec.rope_theta**exponents
    return {
        "encoder.embed_positions.weight": np.concatenate(
            [np.sin(angles), np.cos(angles)], axis=1, dtype=np.float32
        )
    }


def _values(values: dict[str, Any], config: Config) -> dict[str, Any]:
    # The classifier's activation is the layers'; of those that a pooler has none is "gelu_tanh".
    return {**values, "pooler": values["activation"] if values["activation"] == "relu" else "gelu"}


def _reason(spec: ModelSpec) -> str | None:
    if spec.labels and spec.pooler != spec.activation:
        return f'model.pooler = "{spec.pooler}", and in roformer it is model.activation, "{spec.activation}"'
    return None


FAMILY = Family(
    name="roformer",
    prefix="roformer.",
    fields=(*bert.FIELDS, Field("embedding_size", "embedding_size", None, least=1)),
    fixed={"position": ("rotary",), "rope_layout": ("adjacent",), "pooler": ()},
    expected={**bert.EXPECTED, "rotary_value": False},
    body=bert.projected_embeddings,
    layer=lambda spec: bert.LAYER,
    layer_key="encoder.layer.{}.",
    heads=lambda spec: {
        "token head": bert.TOKEN_HEAD,
        "classifier": (
            *affine("classifier.dense", "D D", "pooler/dense"),
            *affine("classifier.out_proj", "C D", "classifier"),
        ),
        "token classifier": bert.TOKEN_CLASSIFIER,
        "span head": bert.SPAN_HEAD,
    },
    classes=(
        ("RoFormerForMaskedLM", ("token head",)),
        ("RoFormerForSequenceClassification", ("classifier",)),
        ("RoFormerForTokenClassification", ("token classifier",)),
        ("RoFormerForQuestionAnswering", ("span head",)),
        ("RoFormerModel", ()),
    ),
    decoder=bert.DECODER,
    aliases=bert.ALIASES,
    values=_values,
    computed=_sines,
    reason=_reason,
)
