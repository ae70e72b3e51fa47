"""RoBERTa (Liu et al. 2019): BERT with positions counted from the padding id + 1."""

from typing import Any

from bert_jax.interop.families import bert
from bert_jax.interop.families.table import VOCABULARY, Config, Entry, Family, affine, norm
from bert_jax.models.spec import ModelSpec


def _values(values: dict[str, Any], config: Config) -> dict[str, Any]:
    padding = config.get("pad_token_id")
    if padding is not None and (not isinstance(padding, int) or padding < 0):
        raise ValueError(f"pad_token_id = {padding!r}: it must be a whole number, at least 0")
    offset = (1 if padding is None else padding) + 1
    return {**values, "position_offset": offset, "max_positions": values["max_positions"] - offset}


def _extra(spec: ModelSpec) -> dict[str, Any]:
    return {"max_position_embeddings": spec.max_positions + spec.position_offset}


def _reason(spec: ModelSpec) -> str | None:
    if spec.position_offset < 1:
        return f"model.position_offset = {spec.position_offset}, and a roberta has 1 or more (2 as published)"
    if spec.has_mlm and spec.activation != "gelu":
        return f'model.activation = "{spec.activation}", and the token head of roberta always has "gelu"'
    return None


FAMILY = Family(
    name="roberta",
    prefix="roberta.",
    fields=(*bert.FIELDS, bert.DROPOUT),
    fixed={"position_offset": ()},
    expected=bert.EXPECTED,
    body=bert.embeddings,
    layer=lambda spec: bert.LAYER,
    layer_key="encoder.layer.{}.",
    heads=lambda spec: {
        "pooler": affine("pooler.dense", "D D", "pooler/dense"),
        "token head": (
            *affine("lm_head.dense", "D D", "token_head/dense"),
            *norm("lm_head.layer_norm", "D", "token_head/norm"),
            Entry("lm_head.bias", "V", ("token_head/bias",), VOCABULARY),
        ),
        "classifier": (
            *affine("classifier.dense", "D D", "pooler/dense"),
            *affine("classifier.out_proj", "C D", "classifier"),
        ),
        "token classifier": bert.TOKEN_CLASSIFIER,
        "span head": bert.SPAN_HEAD,
    },
    classes=(
        ("RobertaForMaskedLM", ("token head",)),
        ("RobertaForSequenceClassification", ("classifier",)),
        ("RobertaForTokenClassification", ("token classifier",)),
        ("RobertaForQuestionAnswering", ("span head",)),
        ("RobertaModel", ("pooler",)),
        ("RobertaModel", ()),
    ),
    decoder="lm_head.decoder.weight",
    aliases={"lm_head.decoder.bias": "lm_head.bias"},
    tokens={"pad_token_id": "pad_id", "bos_token_id": "cls_id", "eos_token_id": "sep_id"},
    values=_values,
    extra=_extra,
    reason=_reason,
)
