"""ELECTRA (Clark et al. 2020): the discriminator, or the generator, each a directory of its own."""

from bert_jax.interop.families import bert
from bert_jax.interop.families.table import VOCABULARY, Entry, Family, Field, affine, norm
from bert_jax.models.spec import ModelSpec


def _reason(spec: ModelSpec) -> str | None:
    if spec.has_mlm and spec.activation != "gelu":
        return f'model.activation = "{spec.activation}", and the token head of electra always has "gelu"'
    return None


FAMILY = Family(
    name="electra",
    prefix="electra.",
    fields=(*bert.FIELDS, bert.DROPOUT, Field("embedding_size", "embedding_size", 128, least=1)),
    fixed={"pooler": ("gelu",)},
    expected=bert.EXPECTED,
    body=bert.projected_embeddings,
    layer=lambda spec: bert.LAYER,
    layer_key="encoder.layer.{}.",
    heads=lambda spec: {
        "token head": (
            *affine("generator_predictions.dense", "E D", "token_head/dense"),
            *norm("generator_predictions.LayerNorm", "E", "token_head/norm"),
            Entry("generator_lm_head.bias", "V", ("token_head/bias",), VOCABULARY),
        ),
        "replaced-token head": (
            *affine("discriminator_predictions.dense", "D D", "rtd_head/dense"),
            *affine("discriminator_predictions.dense_prediction", "1 D", "rtd_head/out"),
        ),
        "classifier": (
            *affine("classifier.dense", "D D", "pooler/dense"),
            *affine("classifier.out_proj", "C D", "classifier"),
        ),
        "token classifier": bert.TOKEN_CLASSIFIER,
        "span head": bert.SPAN_HEAD,
    },
    classes=(
        ("ElectraForPreTraining", ("replaced-token head",)),
        ("ElectraForMaskedLM", ("token head",)),
        ("ElectraForSequenceClassification", ("classifier",)),
        ("ElectraForTokenClassification", ("token classifier",)),
        ("ElectraForQuestionAnswering", ("span head",)),
        ("ElectraModel", ()),
    ),
    decoder="generator_lm_head.weight",
    reason=_reason,
)
