"""DistilBERT (Sanh et al. 2019): BERT without segments and pooler."""

from typing import Any

from bert_jax.interop.families import bert
from bert_jax.interop.families.table import (
    VOCABULARY,
    Entry,
    Family,
    Field,
    affine,
    into_heads,
    norm,
    out_of_heads,
)
from bert_jax.models.spec import ModelSpec


def _extra(spec: ModelSpec) -> dict[str, Any]:
    # Where positions are sines they are a table all the same, which says what they are.
    return {"qa_dropout": spec.classifier_dropout, "sinusoidal_pos_embds": False}


FAMILY = Family(
    name="distilbert",
    prefix="distilbert.",
    fields=(
        Field("vocab_size", "vocab_size", least=1),
        Field("dim", "hidden_size", least=1),
        Field("n_layers", "layers", least=1),
        Field("n_heads", "heads", least=1),
        Field("hidden_dim", "feed_forward_size", least=1),
        Field("max_position_embeddings", "max_positions", least=1),
        Field("activation", "activation", "gelu"),
        Field("dropout", "dropout", 0.1),
        Field("attention_dropout", "attention_dropout", 0.1),
        Field("initializer_range", "init_std", 0.02),
        Field("seq_classif_dropout", "classifier_dropout", 0.2),
    ),
    fixed={"segments": (0,), "pooler": ("relu",)},
    body=bert.embeddings,
    layer=lambda spec: (
        *into_heads("attention.q_lin", "attention/query"),
        *into_heads("attention.k_lin", "attention/key"),
        *into_heads("attention.v_lin", "attention/value"),
        *out_of_heads("attention.out_lin", "attention/out"),
        *norm("sa_layer_norm", "D", "attention_norm"),
        *affine("ffn.lin1", "F D", "feed_forward_in"),
        *affine("ffn.lin2", "D F", "feed_forward_out"),
        *norm("output_layer_norm", "D", "feed_forward_norm"),
    ),
    layer_key="transformer.layer.{}.",
    heads=lambda spec: {
        "token head": (
            *affine("vocab_transform", "D D", "token_head/dense"),
            *norm("vocab_layer_norm", "D", "token_head/norm"),
            Entry("vocab_projector.bias", "V", ("token_head/bias",), VOCABULARY),
        ),
        "classifier": (*affine("pre_classifier", "D D", "pooler/dense"), *bert.CLASSIFIER),
        "token classifier": bert.TOKEN_CLASSIFIER,
        "span head": bert.SPAN_HEAD,
    },
    classes=(
        ("DistilBertForMaskedLM", ("token head",)),
        ("DistilBertForSequenceClassification", ("classifier",)),
        ("DistilBertForTokenClassification", ("token classifier",)),
        ("DistilBertForQuestionAnswering", ("span head",)),
        ("DistilBertModel", ()),
    ),
    decoder="vocab_projector.weight",
    extra=_extra,
)
