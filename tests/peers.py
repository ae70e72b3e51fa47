"""Random models of transformers, and what they say beside what ours say; for the tests of parity."""

import dataclasses
import pathlib
import warnings
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.interop import load
from bert_jax.models.model import Model

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, not ours
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: bash launch/test.sh --parity")
    transformers = pytest.importorskip("transformers", reason="it is not installed: launch/test.sh --parity")
    # Imported on use otherwise, in the midst of a test.
    from transformers.models import albert, bert, distilbert, electra, modernbert, roberta, roformer  # noqa: F401

torch.set_num_threads(1)  # small models run faster so

LIMIT = 1e-5
V, P = 37, 40
SIZES = {
    "vocab_size": V, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": P, "type_vocab_size": 2,
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": SIZES,
    "roberta": SIZES | {"max_position_embeddings": P + 2, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "albert": SIZES | {"embedding_size": 8},
    "electra": SIZES | {"embedding_size": 8},
    "distilbert": {
        "vocab_size": V, "dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 24,
        "max_position_embeddings": P,
    },
    "roformer": SIZES | {"embedding_size": 8},
    # Of five layers 0 and 3 are global; in the others a token sees 4 to each side.
    "modernbert": {
        **{key: SIZES[key] for key in list(SIZES)[:6]}, "num_hidden_layers": 5, "local_attention": 8,
        "pad_token_id": 0, "bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3,
    },
}  # fmt: skip
OF_TOKENS = ("hidden", "mlm_logits", "rtd_logits", "span_logits", "token_labels_logits")


def peer_of(family: str, name: str, change: dict[str, Any]) -> Any:
    """A random model, its norms and biases too far from ones and zeros for a wrong layout to hide."""
    labels = 5 if name.endswith(("SequenceClassification", "TokenClassification")) else 2
    config = transformers.CONFIG_MAPPING[family](**(CONFIGS[family] | {"num_labels": labels} | change))
    config._attn_implementation = "eager"
    torch.manual_seed(len(name))
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "embed_positions" not in key and not (
                change.get("sinusoidal_pos_embds") and "position" in key
            ):
                parameter.add_(torch.randn_like(parameter) * 0.15)
    return model


def rows(family: str) -> dict[str, np.ndarray]:
    """Three texts of 33, 7 and 1 tokens, padded."""
    rng = np.random.default_rng(0)
    tokens, real = rng.integers(5, V, (3, 33)), np.arange(33)[None] < np.array([[33], [7], [1]])
    tokens[~real] = CONFIGS[family].get("pad_token_id", 1 if family == "roberta" else 0)
    types = rng.integers(0, CONFIGS[family].get("type_vocab_size", 1), (3, 33))
    return {"tokens": tokens, "segment_ids": real.astype(np.int64), "type_ids": types}


def theirs(model: Any, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a peer says, by our names; `segment_ids` may be left out."""
    inputs = {"input_ids": torch.tensor(batch["tokens"])}
    if "segment_ids" in batch:
        inputs["attention_mask"] = torch.tensor(batch["segment_ids"])
    if hasattr(model.config, "type_vocab_size"):
        inputs["token_type_ids"] = torch.tensor(batch["type_ids"])
    with torch.no_grad():
        out = model(**inputs)
    name = type(model).__name__
    found = {}
    if name.endswith("Model"):
        found = {"hidden": out.last_hidden_state, "pooled": out.get("pooler_output")}
    elif name == "ElectraForPreTraining":
        found = {"rtd_logits": out.logits}
    elif name.endswith("PreTraining"):
        pair = out.get("seq_relationship_logits", out.get("sop_logits"))
        found = {"mlm_logits": out.prediction_logits, "nsp_logits": pair}
    elif name.endswith("QuestionAnswering"):
        found = {"span_logits": torch.stack([out.start_logits, out.end_logits], -1)}
    else:
        suffixes = {
            "ForMaskedLM": "mlm_logits", "SentencePrediction": "nsp_logits",
            "SequenceClassification": "logits", "TokenClassification": "token_labels_logits",
        }  # fmt: skip
        found = {next(ours for suffix, ours in suffixes.items() if name.endswith(suffix)): out.logits}
    return {key: value.numpy() for key, value in found.items() if value is not None}


def ours(source: load.Source, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    model = Model(dataclasses.replace(source.spec, scan=True))  # compiles sooner

    def apply(params: Any, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        out = model.apply({"params": params}, batch)
        if source.spec.has_pooler:
            out["pooled"] = model.apply({"params": params}, out["hidden"], method="pooled")
        return out

    batch = {key: value.astype(np.int32) for key, value in batch.items()}
    return {key: np.asarray(value) for key, value in jax.jit(apply)(source.params, batch).items()}


def difference(
    found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], real: np.ndarray | None
) -> dict[str, float]:
    """The largest difference of each output where there is a token."""
    largest = {}
    for name, want in wanted.items():
        have = found[name][..., :V] if name == "mlm_logits" else found[name]
        assert have.shape == want.shape
        gap = np.abs(have - want)
        if (
            real is not None
            and want.shape[:2] == real.shape
            and name not in ("logits", "nsp_logits", "pooled")
        ):
            gap, want = gap[real == 1], want[real == 1]
        assert np.abs(want).max() > 0.05, "a comparison of nothing"
        largest[name] = float(gap.max())
    return largest


def vocabulary(folder: pathlib.Path, family: str) -> None:
    """A vocabulary beside a model, its padding where the family has it."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(V - 5))]
    if family == "roberta":
        words[:2] = words[1::-1]
    (folder / "vocab.txt").write_text("\n".join(words))
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
