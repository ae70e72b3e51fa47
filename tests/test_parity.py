"""Every family against transformers: what it computes, in and out, on random models.

Needs PyTorch and transformers, in an environment of their own: bash launch/test.sh --parity.
"""

import json
import pathlib
from typing import Any

import jax
import numpy as np
import pytest
from etils import epath
from peers import LIMIT, OF_TOKENS, difference, ours, peer_of, rows, theirs, transformers, vocabulary
from safetensors.numpy import load_file

from bert_jax import convert
from bert_jax.interop import load
from bert_jax.interop.families import FAMILIES

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs

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
