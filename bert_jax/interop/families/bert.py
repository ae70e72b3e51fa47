"""BERT (Devlin et al. 2018)."""

from bert_jax.interop.families.table import (
    VOCABULARY,
    Entry,
    Family,
    Field,
    affine,
    into_heads,
    norm,
    out_of_heads,
    table,
)
from bert_jax.models.spec import ModelSpec

# Fields that most families name alike.
FIELDS = (
    Field("vocab_size", "vocab_size", least=1),
    Field("hidden_size", "hidden_size", least=1),
    Field("num_hidden_layers", "layers", least=1),
    Field("num_attention_heads", "heads", least=1),
    Field("intermediate_size", "feed_forward_size", least=1),
    Field("max_position_embeddings", "max_positions", least=1),
    Field("type_vocab_size", "segments", 2, least=1),
    Field("hidden_act", "activation", "gelu"),
    Field("layer_norm_eps", "norm_eps", 1e-12),
    Field("hidden_dropout_prob", "dropout", 0.1),
    Field("attention_probs_dropout_prob", "attention_dropout", 0.1),
    Field("initializer_range", "init_std", 0.02),
)
DROPOUT = Field("classifier_dropout", "classifier_dropout", None)  # where it is null, as the others
EXPECTED = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}

LAYER = (
    *into_heads("attention.self.query", "attention/query"),
    *into_heads("attention.self.key", "attention/key"),
    *into_heads("attention.self.value", "attention/value"),
    *out_of_heads("attention.output.dense", "attention/out"),
    *norm("attention.output.LayerNorm", "D", "attention_norm"),
    *affine("intermediate.dense", "F D", "feed_forward_in"),
    *affine("output.dense", "D F", "feed_forward_out"),
    *norm("output.LayerNorm", "D", "feed_forward_norm"),
)
TOKEN_HEAD = (
    *affine("cls.predictions.transform.dense", "E D", "token_head/dense"),
    *norm("cls.predictions.transform.LayerNorm", "E", "token_head/norm"),
    Entry("cls.predictions.bias", "V", ("token_head/bias",), VOCABULARY),
)
DECODER = "cls.predictions.decoder.weight"
ALIASES = {"cls.predictions.decoder.bias": "cls.predictions.bias"}

# Heads that are one matrix on the last states, or on the pooled one.
CLASSIFIER = affine("classifier", "C D", "classifier")
TOKEN_CLASSIFIER = affine("classifier", "G D", "token_classifier")
SPAN_HEAD = affine("qa_outputs", "2 D", "span_head")


def embeddings(spec: ModelSpec) -> tuple[Entry, ...]:
    """Returns the tables and their norm; of width E, and projected to D where that is another."""
    positions = table("embeddings.position_embeddings", "P E", "encoder/position")
    return (
        *table("embeddings.word_embeddings", "V E", "encoder/word", VOCABULARY),
        *(positions if spec.position == "learned" else ()),
        *(table("embeddings.token_type_embeddings", "T E", "encoder/segment") if spec.segments else ()),
        *norm("embeddings.LayerNorm", "E", "encoder/embedding_norm"),
    )


def projected_embeddings(spec: ModelSpec) -> tuple[Entry, ...]:
    """Returns `embeddings`, with the projection from E to D where they differ."""
    project = affine("embeddings_project", "D E", "encoder/embedding_projection")
    return (*embeddings(spec), *(project if spec.embedded_size != spec.hidden_size else ()))


FAMILY = Family(
    name="bert",
    prefix="bert.",
    fields=(*FIELDS, DROPOUT),
    expected=EXPECTED,
    body=embeddings,
    layer=lambda spec: LAYER,
    layer_key="encoder.layer.{}.",
    heads=lambda spec: {
        "pooler": affine("pooler.dense", "D D", "pooler/dense"),
        "token head": TOKEN_HEAD,
        "next-sentence head": affine("cls.seq_relationship", "2 D", "nsp_head/dense"),
        "classifier": CLASSIFIER,
        "token classifier": TOKEN_CLASSIFIER,
        "span head": SPAN_HEAD,
    },
    classes=(
        ("BertForPreTraining", ("pooler", "token head", "next-sentence head")),
        ("BertForMaskedLM", ("token head",)),
        ("BertForNextSentencePrediction", ("pooler", "next-sentence head")),
        ("BertForSequenceClassification", ("pooler", "classifier")),
        ("BertForTokenClassification", ("token classifier",)),
        ("BertForQuestionAnswering", ("span head",)),
        ("BertModel", ("pooler",)),
        ("BertModel", ()),
    ),
    decoder=DECODER,
    aliases=ALIASES,
)
