"""TensorFlow 1 checkpoints of BERT and ALBERT: the values that TensorFlow reads, and refusals."""

import json
import pathlib
from typing import Any

import numpy as np
import pytest
import small
from safetensors.numpy import save_file

from bert_jax import completion
from bert_jax.interop import load

V, E, D, F, P = 9, 4, 8, 12, 10
ALBERT = {
    "vocab_size": V, "embedding_size": E, "hidden_size": D, "num_hidden_layers": 3, "num_attention_heads": 2,
    "intermediate_size": F, "max_position_embeddings": P, "type_vocab_size": 2, "hidden_act": "gelu",
    "num_hidden_groups": 1, "inner_group_num": 1, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0,
    "net_structure_type": 0,
}  # fmt: skip
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "all", "work", "and", "no"]


def save(prefix: pathlib.Path, variables: dict[str, Any]) -> None:
    """Writes variables as TensorFlow 1's saver does: under their names alone."""
    import tensorflow as tf

    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(variables),
        shape_and_slices=[""] * len(variables),
        tensors=[tf.constant(value) for value in variables.values()],
    )


def albert_variables() -> dict[str, Any]:
    """A random ALBERT by the names of its TensorFlow code, with slots of its optimizer."""
    layer = "bert/encoder/transformer/group_0/inner_group_0"
    shapes: dict[str, tuple[int, ...]] = {
        "bert/embeddings/word_embeddings": (V, E),
        "bert/embeddings/position_embeddings": (P, E),
        "bert/embeddings/token_type_embeddings": (2, E),
        "cls/predictions/output_bias": (V,),
        "cls/seq_relationship/output_weights": (2, D),
        "cls/seq_relationship/output_bias": (2,),
    }
    for name, size in [
        ("bert/embeddings/LayerNorm", E), ("cls/predictions/transform/LayerNorm", E),
        (f"{layer}/LayerNorm", D), (f"{layer}/LayerNorm_1", D),
    ]:  # fmt: skip
        shapes |= {f"{name}/gamma": (size,), f"{name}/beta": (size,)}
    for name, rows, columns in [
        ("bert/encoder/embedding_hidden_mapping_in", E, D), ("bert/pooler/dense", D, D),
        (f"{layer}/attention_1/self/query", D, D), (f"{layer}/attention_1/self/key", D, D),
        (f"{layer}/attention_1/self/value", D, D), (f"{layer}/attention_1/output/dense", D, D),
        (f"{layer}/ffn_1/intermediate/dense", D, F), (f"{layer}/ffn_1/intermediate/output/dense", F, D),
        ("cls/predictions/transform/dense", D, E),
    ]:  # fmt: skip
        shapes |= {f"{name}/kernel": (rows, columns), f"{name}/bias": (columns,)}
    rng = np.random.default_rng(0)
    made: dict[str, Any] = {name: rng.normal(size=s).astype(np.float32) for name, s in shapes.items()}
    slots = {f"{name}/{slot}": value * 0 for name, value in made.items() for slot in ("lamb_m", "lamb_v")}
    return made | slots | {"global_step": np.int64(7)}


def write_albert(folder: pathlib.Path, **config: Any) -> pathlib.Path:
    folder.mkdir()
    (folder / "albert_config.json").write_text(json.dumps(ALBERT | config))
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    save(folder / "model.ckpt-best", albert_variables())
    return folder


def test_bert_has_the_values_that_tensorflow_reads(test_data: pathlib.Path) -> None:
    import tensorflow as tf

    folder = test_data / "weights/keras_bert_tf1_tiny"
    source = load.read(folder)
    spec, params = source.spec, source.params
    assert (spec.hidden_size, spec.layers, spec.heads, spec.vocab_size) == (4, 2, 4, 15)
    assert (spec.has_mlm, spec.has_nsp, spec.has_pooler, spec.activation) == (True, True, True, "gelu")
    assert "left out: 93 arrays of the optimizer" in source.report

    want = tf.train.load_checkpoint(str(folder / "bert_model.ckpt")).get_tensor
    encoder, layers = params["encoder"], params["encoder"]["layers"]
    pairs = [
        (encoder["word"][:15], "bert/embeddings/word_embeddings"),
        (encoder["position"], "bert/embeddings/position_embeddings"),
        (encoder["segment"], "bert/embeddings/token_type_embeddings"),
        (encoder["embedding_norm"]["scale"], "bert/embeddings/LayerNorm/gamma"),
        (encoder["embedding_norm"]["bias"], "bert/embeddings/LayerNorm/beta"),
        (params["pooler"]["dense"]["kernel"], "bert/pooler/dense/kernel"),
        (params["pooler"]["dense"]["bias"], "bert/pooler/dense/bias"),
        (params["token_head"]["dense"]["kernel"], "cls/predictions/transform/dense/kernel"),
        (params["token_head"]["norm"]["scale"], "cls/predictions/transform/LayerNorm/gamma"),
        (params["token_head"]["bias"][:15], "cls/predictions/output_bias"),
        (params["nsp_head"]["dense"]["kernel"].T, "cls/seq_relationship/output_weights"),
        (params["nsp_head"]["dense"]["bias"], "cls/seq_relationship/output_bias"),
    ]
    for i in range(2):
        at = f"bert/encoder/layer_{i}"
        for name in ("query", "key", "value"):
            pairs.append((layers["attention"][name]["kernel"][i], f"{at}/attention/self/{name}/kernel"))
            pairs.append((layers["attention"][name]["bias"][i], f"{at}/attention/self/{name}/bias"))
        for ours, theirs in [
            ("attention/out", "attention/output/dense"), ("feed_forward_in", "intermediate/dense"),
            ("feed_forward_out", "output/dense"),
        ]:  # fmt: skip
            group = layers
            for part in ours.split("/"):
                group = group[part]
            pairs += [
                (group["kernel"][i], f"{at}/{theirs}/kernel"),
                (group["bias"][i], f"{at}/{theirs}/bias"),
            ]
        for ours, theirs in [("attention_norm", "attention/output"), ("feed_forward_norm", "output")]:
            pairs.append((layers[ours]["scale"][i], f"{at}/{theirs}/LayerNorm/gamma"))
            pairs.append((layers[ours]["bias"][i], f"{at}/{theirs}/LayerNorm/beta"))
    for found, name in pairs:
        value = want(name)
        np.testing.assert_array_equal(found.reshape(value.shape), value, err_msg=name)
    assert len(pairs) == 12 + 2 * 16


def test_albert_is_the_same_model_as_in_the_other_layout(tmp_path: pathlib.Path) -> None:
    source = load.read(write_albert(tmp_path / "albert"))
    v = albert_variables()
    layer, at = (
        "bert/encoder/transformer/group_0/inner_group_0",
        "encoder.albert_layer_groups.0.albert_layers.0",
    )
    keys = {
        "bert/encoder/embedding_hidden_mapping_in": "encoder.embedding_hidden_mapping_in",
        "bert/pooler/dense": "pooler",
        f"{layer}/attention_1/self/query": f"{at}.attention.query",
        f"{layer}/attention_1/self/key": f"{at}.attention.key",
        f"{layer}/attention_1/self/value": f"{at}.attention.value",
        f"{layer}/attention_1/output/dense": f"{at}.attention.dense",
        f"{layer}/ffn_1/intermediate/dense": f"{at}.ffn",
        f"{layer}/ffn_1/intermediate/output/dense": f"{at}.ffn_output",
        "cls/predictions/transform/dense": "predictions.dense",
    }
    norms = {
        "bert/embeddings/LayerNorm": "embeddings.LayerNorm",
        f"{layer}/LayerNorm": f"{at}.attention.LayerNorm",
        f"{layer}/LayerNorm_1": f"{at}.full_layer_layer_norm",
        "cls/predictions/transform/LayerNorm": "predictions.LayerNorm",
    }
    tensors = {f"{key}.weight": np.ascontiguousarray(v[f"{name}/kernel"].T) for name, key in keys.items()}
    tensors |= {f"{key}.bias": v[f"{name}/bias"] for name, key in keys.items()}
    tensors |= {f"{key}.weight": v[f"{name}/gamma"] for name, key in norms.items()}
    tensors |= {f"{key}.bias": v[f"{name}/beta"] for name, key in norms.items()}
    for table in ("word", "position", "token_type"):
        tensors[f"embeddings.{table}_embeddings.weight"] = v[f"bert/embeddings/{table}_embeddings"]
    tensors["predictions.bias"] = v["cls/predictions/output_bias"]
    tensors["sop_classifier.classifier.weight"] = v["cls/seq_relationship/output_weights"]
    tensors["sop_classifier.classifier.bias"] = v["cls/seq_relationship/output_bias"]

    folder = tmp_path / "other"
    folder.mkdir()
    config = ALBERT | {"model_type": "albert", "hidden_act": "gelu_new"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    save_file(tensors, folder / "model.safetensors")
    other = load.read(folder)
    # That code's "gelu" is the tanh form.
    assert source.spec == other.spec and source.spec.activation == "gelu_tanh" and source.spec.share_layers
    flat, wanted = flatten(source.params), flatten(other.params)
    assert flat.keys() == wanted.keys() and len(flat) == 32
    for path, value in wanted.items():
        np.testing.assert_array_equal(flat[path], value, err_msg=path)


def flatten(tree: dict[str, Any], before: str = "") -> dict[str, np.ndarray]:
    flat: dict[str, np.ndarray] = {}
    for name, value in tree.items():
        flat |= flatten(value, f"{before}{name}/") if isinstance(value, dict) else {f"{before}{name}": value}
    return flat


def test_a_run_starts_from_a_checkpoint(tmp_path: pathlib.Path) -> None:
    folder = write_albert(tmp_path / "albert")
    config = small.config(tmp_path, **{"init_from": str(folder), "data.seq_len": 8})
    complete, source, _ = completion.complete(config, None)
    assert source is not None
    assert (complete.model.share_layers, complete.model.embedding_size, complete.model.layers) == (True, E, 3)
    assert complete.data.tokenizer == str(folder)


def test_what_is_refused(tmp_path: pathlib.Path) -> None:
    import tensorflow as tf

    folder = write_albert(tmp_path / "two")
    save(folder / "model.ckpt-1", {"global_step": np.int64(1)})
    with pytest.raises(ValueError, match=r"several checkpoints \(model\.ckpt-1, model\.ckpt-best\)"):
        load.read(folder)
    with pytest.raises(ValueError, match="num_hidden_groups = 2: only 1 can be read"):
        load.read(write_albert(tmp_path / "groups", num_hidden_groups=2))
    with pytest.raises(ValueError, match=r"ffn\.weight has the shape \(12, 8\), .* asks for \(13, 8\)"):
        load.read(write_albert(tmp_path / "size", intermediate_size=13))

    folder = write_albert(tmp_path / "cut")
    next(folder.glob("*.data-*")).unlink()
    with pytest.raises(ValueError, match=r"model\.ckpt-best cannot be read: .*copy all its files anew"):
        load.read(folder)
    folder = write_albert(tmp_path / "objects")
    for file in folder.glob("model.ckpt-best*"):
        file.unlink()
    tf.train.Checkpoint(step=tf.Variable(1)).write(str(folder / "ckpt"))
    with pytest.raises(ValueError, match="is a checkpoint of TensorFlow 2 objects"):
        load.read(folder)
