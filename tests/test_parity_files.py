"""Files of transformers and PyTorch, pretraining's two models, and real weights, against their own code.

Needs PyTorch and transformers, in an environment of their own: bash launch/test.sh --parity.
"""

import dataclasses
import json
import pathlib
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from peers import LIMIT, P, V, difference, ours, peer_of, rows, theirs, torch, transformers, vocabulary
from safetensors.numpy import load_file

import bert_jax
from bert_jax import convert
from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.interop import load
from bert_jax.models.model import Model
from bert_jax.models.spec import ModelSpec

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs


def test_electra_after_pretraining(tmp_path: pathlib.Path) -> None:
    spec = ModelSpec(
        V, 4, hidden_size=16, embedding_size=12, layers=2, heads=2, feed_forward_size=24, max_positions=P,
        has_mlm=False, has_rtd=True, has_generator=True, generator_fraction=0.5, scan=True,
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
    out = jax.jit(model.apply)({"params": params}, inputs, rngs={"sample": jax.random.key(1)})
    logits = theirs(peers["ElectraForMaskedLM"].eval(), masked)["mlm_logits"]
    chosen = np.take_along_axis(logits, places[..., None], axis=1)
    assert np.abs(np.asarray(out["mlm_logits"])[..., :V] - chosen)[weights > 0].max() < LIMIT
    plain = dataclasses.replace(spec, has_generator=False)
    told = ours(dataclasses.replace(source, spec=plain), batch)
    wanted = theirs(peers["ElectraForPreTraining"].eval(), batch)
    assert max(difference(told, wanted, batch["segment_ids"]).values()) < LIMIT


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


def test_real_albert_gives_the_golden_numbers(tmp_path: pathlib.Path, test_data: pathlib.Path) -> None:
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


def test_real_sentence_encoder_out_and_in(tmp_path: pathlib.Path, minilm: pathlib.Path) -> None:
    folder = minilm
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
