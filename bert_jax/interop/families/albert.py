"""ALBERT (Lan et al. 2020): small embeddings, one layer's weights in all layers, sentence order."""

import numpy as np

from bert_jax.interop.families import bert
from bert_jax.interop.families.table import (
    VOCABULARY,
    Entry,
    Family,
    Field,
    Tensors,
    affine,
    into_heads,
    norm,
    out_of_heads,
)
from bert_jax.models.spec import ModelSpec

_MAPPING = "encoder.embedding_hidden_mapping_in"


def _body(spec: ModelSpec) -> tuple[Entry, ...]:
    mapping = affine(_MAPPING, "D E", "encoder/embedding_projection")
    return (*bert.embeddings(spec), *(mapping if spec.embedded_size != spec.hidden_size else ()))


def _identity(spec: ModelSpec) -> Tensors:
    """Returns the mapping that an ALBERT file has even where E = D, and there is none here."""
    if spec.embedded_size != spec.hidden_size:
        return {}
    size = spec.hidden_size
    return {
        f"{_MAPPING}.weight": np.eye(size, dtype=np.float32),
        f"{_MAPPING}.bias": np.zeros(size, np.float32),
    }


FAMILY = Family(
    name="albert",
    prefix="albert.",
    fields=(
        *(field for field in bert.FIELDS if field.key not in ("hidden_act", "hidden_dropout_prob")),
        Field("embedding_size", "embedding_size", 128, least=1),
        Field("hidden_act", "activation", "gelu_new"),
        Field("hidden_dropout_prob", "dropout", 0.0),
        Field("classifier_dropout_prob", "classifier_dropout", 0.1),
    ),
    fixed={"share_layers": (True,)},
    expected={**bert.EXPECTED, "num_hidden_groups": 1, "inner_group_num": 1},
    body=_body,
    layer=lambda spec: (
        *into_heads("attention.query", "attention/query"),
        *into_heads("attention.key", "attention/key"),
        *into_heads("attention.value", "attention/value"),
        *out_of_heads("attention.dense", "attention/out"),
        *norm("attention.LayerNorm", "D", "attention_norm"),
        *affine("ffn", "F D", "feed_forward_in"),
        *affine("ffn_output", "D F", "feed_forward_out"),
        *norm("full_layer_layer_norm", "D", "feed_forward_norm"),
    ),
    layer_key="encoder.albert_layer_groups.0.albert_layers.0.",
    heads=lambda spec: {
        "pooler": affine("pooler", "D D", "pooler/dense"),
        "token head": (
            *affine("predictions.dense", "E D", "token_head/dense"),
            *norm("predictions.LayerNorm", "E", "token_head/norm"),
            Entry("predictions.bias", "V", ("token_head/bias",), VOCABULARY),
        ),
        "sentence-order head": affine("sop_classifier.classifier", "2 D", "nsp_head/dense"),
        "classifier": bert.CLASSIFIER,
        "token classifier": bert.TOKEN_CLASSIFIER,
        "span head": bert.SPAN_HEAD,
    },
    classes=(
        ("AlbertForPreTraining", ("pooler", "token head", "sentence-order head")),
        ("AlbertForMaskedLM", ("token head",)),
        ("AlbertForSequenceClassification", ("pooler", "classifier")),
        ("AlbertForTokenClassification", ("token classifier",)),
        ("AlbertForQuestionAnswering", ("span head",)),
        ("AlbertModel", ("pooler",)),
        ("AlbertModel", ()),
    ),
    decoder="predictions.decoder.weight",
    aliases={"predictions.decoder.bias": "predictions.bias"},
    tokens={"pad_token_id": "pad_id", "bos_token_id": "cls_id", "eos_token_id": "sep_id"},
    computed=_identity,
)
