"""Hugging Face directories: the numbers of PyTorch and of a plain NumPy forward, and refusals."""

import json
import pathlib
from typing import Any

import flax.linen as nn
import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from scipy.special import erf

import bert_jax
from bert_jax.interop import load

V, D, H, L, F, P = 30, 8, 2, 2, 16, 12
CONFIG = {
    "model_type": "bert", "vocab_size": V, "hidden_size": D, "num_hidden_layers": L, "num_attention_heads": H,
    "intermediate_size": F, "max_position_embeddings": P, "type_vocab_size": 2, "hidden_act": "gelu",
    "layer_norm_eps": 1e-12, "id2label": {"0": "no", "1": "yes", "2": "maybe"},
}  # fmt: skip
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(V - 5))]
TOKENS = np.array([[2, 7, 9, 8, 3], [2, 5, 3, 0, 0]])
REAL = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
TYPES = np.array([[0, 0, 1, 1, 1], [0, 0, 0, 0, 0]])
BATCH = {"tokens": TOKENS, "segment_ids": REAL, "type_ids": TYPES}


def encoder(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Arrays of an encoder, in PyTorch's layout."""
    shapes = {
        "embeddings.word_embeddings.weight": (V, D),
        "embeddings.position_embeddings.weight": (P, D),
        "embeddings.token_type_embeddings.weight": (2, D),
        "embeddings.LayerNorm.weight": (D,),
        "embeddings.LayerNorm.bias": (D,),
    }
    for i in range(L):
        layer = f"encoder.layer.{i}"
        for name, rows, columns in [
            ("attention.self.query", D, D), ("attention.self.key", D, D), ("attention.self.value", D, D),
            ("attention.output.dense", D, D), ("intermediate.dense", F, D), ("output.dense", D, F),
        ]:  # fmt: skip
            shapes |= {f"{layer}.{name}.weight": (rows, columns), f"{layer}.{name}.bias": (rows,)}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{layer}.{name}.weight": (D,), f"{layer}.{name}.bias": (D,)}
    return random(shapes, rng)


def heads(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Arrays of every head."""
    transform = "cls.predictions.transform"
    shapes = {
        "pooler.dense.weight": (D, D), "pooler.dense.bias": (D,),
        f"{transform}.dense.weight": (D, D), f"{transform}.dense.bias": (D,),
        f"{transform}.LayerNorm.weight": (D,), f"{transform}.LayerNorm.bias": (D,),
        "cls.predictions.bias": (V,),
        "cls.seq_relationship.weight": (2, D), "cls.seq_relationship.bias": (2,),
        "classifier.weight": (3, D), "classifier.bias": (3,),
    }  # fmt: skip
    return random(shapes, rng)


def random(shapes: dict[str, tuple[int, ...]], rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def tensors() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return encoder(rng) | heads(rng)


def write(folder: pathlib.Path, tensors: dict[str, np.ndarray], **config: Any) -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    values = {key: value for key, value in (CONFIG | config).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(values))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    if tensors:
        save_file(tensors, folder / "model.safetensors")
    return folder


def dense(x: np.ndarray, t: dict[str, np.ndarray], name: str) -> np.ndarray:
    return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]


def norm(x: np.ndarray, t: dict[str, np.ndarray], name: str) -> np.ndarray:
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    return x * t[f"{name}.LayerNorm.weight"] + t[f"{name}.LayerNorm.bias"]


def gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + erf(x / np.sqrt(2))) / 2


def bert(
    t: dict[str, np.ndarray], tokens: np.ndarray, real: np.ndarray, types: np.ndarray, layers: int, heads: int
) -> np.ndarray:
    """The last hidden states by Devlin et al. 2018, on arrays in PyTorch's layout, in float64."""
    t = {name: x.astype(np.float64) for name, x in t.items()}
    batch, length = tokens.shape
    x = t["embeddings.word_embeddings.weight"][tokens] + t["embeddings.position_embeddings.weight"][:length]
    x = norm(x + t["embeddings.token_type_embeddings.weight"][types], t, "embeddings")
    for i in range(layers):
        layer = f"encoder.layer.{i}"
        q, k, v = (
            dense(x, t, f"{layer}.attention.self.{name}").reshape(batch, length, heads, -1).swapaxes(1, 2)
            for name in ("query", "key", "value")
        )
        scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]) + np.where(real, 0.0, -np.inf)[:, None, None]
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = (weights @ v).swapaxes(1, 2).reshape(x.shape)
        x = norm(x + dense(mixed, t, f"{layer}.attention.output.dense"), t, f"{layer}.attention.output")
        inner = gelu(dense(x, t, f"{layer}.intermediate.dense"))
        x = norm(x + dense(inner, t, f"{layer}.output.dense"), t, f"{layer}.output")
    return x


def shapes(tree: Any) -> Any:
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


def test_every_head_gives_the_numbers_of_a_plain_forward(
    tmp_path: pathlib.Path, tensors: dict[str, np.ndarray]
) -> None:
    model, params, tokenizer = bert_jax.load(write(tmp_path, tensors))
    assert tokenizer.vocab_size == V
    assert params["encoder"]["word"].shape == (128, D)
    assert not params["encoder"]["word"][V:].any()
    made = nn.unbox(jax.eval_shape(lambda: model.init(jax.random.key(0), BATCH)))["params"]
    assert shapes(made) == shapes(params)

    out = jax.jit(lambda p, b: model.apply({"params": p}, b))(params, BATCH)
    hidden = bert(tensors, TOKENS, REAL, TYPES, L, H)
    # Padding's own states differ: here a padded query sees nothing.
    assert np.abs(np.asarray(out["hidden"]) - hidden)[REAL == 1].max() < 1e-5
    pooled = np.tanh(dense(hidden[:, 0], tensors, "pooler.dense"))
    transformed = norm(
        gelu(dense(hidden, tensors, "cls.predictions.transform.dense")), tensors, "cls.predictions.transform"
    )
    logits = transformed @ tensors["embeddings.word_embeddings.weight"].T + tensors["cls.predictions.bias"]
    assert np.abs(np.asarray(out["mlm_logits"])[..., :V] - logits)[REAL == 1].max() < 1e-4
    assert (np.asarray(out["mlm_logits"])[..., V:] < -1e8).all()
    np.testing.assert_allclose(out["nsp_logits"], dense(pooled, tensors, "cls.seq_relationship"), atol=1e-5)
    np.testing.assert_allclose(out["logits"], dense(pooled, tensors, "classifier"), atol=1e-5)
    assert load.read(tmp_path).labels == ("no", "yes", "maybe")


def same(a: load.Source, b: load.Source) -> None:
    assert a.spec == b.spec
    assert jax.tree.all(jax.tree.map(np.array_equal, a.params, b.params))


def test_prefix_old_names_and_shards_are_the_same_model(
    tmp_path: pathlib.Path, tensors: dict[str, np.ndarray]
) -> None:
    plain = load.read(write(tmp_path / "plain", tensors))

    def old(key: str) -> str:
        key = key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        return key if key.startswith(("cls.", "classifier.")) else f"bert.{key}"

    renamed = {old(key): value for key, value in tensors.items()}
    renamed["bert.embeddings.position_ids"] = np.arange(P)[None]
    renamed["cls.predictions.decoder.weight"] = tensors["embeddings.word_embeddings.weight"]
    renamed["cls.predictions.decoder.bias"] = renamed.pop("cls.predictions.bias")
    source = load.read(write(tmp_path / "prefix", renamed))
    same(plain, source)
    assert "left out: bert.embeddings.position_ids" in source.report

    folder = write(tmp_path / "sharded", {})
    files = {key: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, key in enumerate(sorted(tensors))}
    for name in set(files.values()):
        save_file({key: tensors[key] for key in tensors if files[key] == name}, folder / name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    same(plain, load.read(folder))
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ValueError, match=r"model-00002-of-00002\.safetensors, which .* is not there"):
        load.read(folder)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sixteen_bits_become_float32(
    tmp_path: pathlib.Path, tensors: dict[str, np.ndarray], dtype: Any
) -> None:
    short = {key: value.astype(dtype) for key, value in tensors.items()}
    word = load.read(write(tmp_path, short)).params["encoder"]["word"]
    assert word.dtype == np.float32
    np.testing.assert_array_equal(word[:V], short["embeddings.word_embeddings.weight"].astype(np.float32))


def test_only_heads_that_are_there(tmp_path: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    bare = {key: x for key, x in tensors.items() if key.startswith(("embeddings.", "encoder."))}
    source = load.read(write(tmp_path / "bare", bare | {"lm.extra": np.zeros(2, np.float32)}))
    spec = source.spec
    assert (spec.has_mlm, spec.has_nsp, spec.has_pooler, spec.labels) == (False, False, False, 0)
    assert set(source.params) == {"encoder"}
    assert source.report == [
        "loaded: encoder of 2 layers",
        "not in the files: pooler",
        "not in the files: token head",
        "not in the files: next-sentence head",
        "not in the files: classifier",
        "not in the files: span head",
        "left out: lm.extra",
    ]
    pooler = {key: x for key, x in tensors.items() if key.startswith("pooler.")}
    model, params, _ = bert_jax.load(write(tmp_path / "pooler", bare | pooler))
    hidden = model.apply({"params": params}, BATCH, method="hidden")
    pooled = model.apply({"params": params}, hidden, method="pooled")
    want = np.tanh(dense(np.asarray(hidden)[:, 0], tensors, "pooler.dense"))
    np.testing.assert_allclose(pooled, want, atol=1e-5)
    # What token classification keeps under the classifier's name is no label of a text, and what multiple
    # choice keeps there is neither.
    tagger = load.read(write(tmp_path / "tagger", tensors, architectures=["BertForTokenClassification"]))
    assert (tagger.spec.labels, tagger.spec.token_labels) == (0, 3)
    np.testing.assert_array_equal(tagger.params["token_classifier"]["kernel"], tensors["classifier.weight"].T)
    assert tagger.labels == ("no", "yes", "maybe")
    choice = load.read(write(tmp_path / "choice", tensors, architectures=["BertForMultipleChoice"]))
    assert (choice.spec.labels, choice.spec.token_labels) == (0, 0)
    assert "left out: classifier.weight" in choice.report


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, 'has model_type \'gpt2\': only "bert", "roberta", .* can be read'),
        ({"model_type": "xlm-roberta"}, "'xlm-roberta': its encoder is RoBERTa's, but its vocabulary"),
        ({"model_type": None}, "has no model_type"),
        ({"model_type": "roberta", "pad_token_id": "1"}, "pad_token_id = '1': it must be a whole number"),
        ({"model_type": "roberta", "pad_token_id": 11}, "max_position_embeddings leaves no positions"),
        ({"hidden_act": "silu"}, "hidden_act = 'silu': it must be one of gelu, gelu_new"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'"),
        ({"is_decoder": True}, "is_decoder = True: only False can be read"),
        ({"hidden_size": "8"}, "hidden_size = '8': it must be a whole number, at least 1"),
        ({"num_attention_heads": None}, "num_attention_heads is missing: it must be a whole number"),
        ({"num_attention_heads": 3}, "hidden_size = 8 is not a multiple of num_attention_heads = 3"),
        (
            {"intermediate_size": 32},
            r"encoder.layer.0.intermediate.dense.weight has the shape \(16, 8\), .* asks for \(32, 8\)",
        ),
        ({"vocab_size": 31}, r"word_embeddings.weight has the shape \(30, 8\), .* asks for \(31, 8\)"),
        ({"num_hidden_layers": 3}, "encoder.layer.2.attention.self.query.weight is missing, the first of 16"),
        ({"id2label": {"0": "a", "1": "b"}}, "classifier.weight has 3 rows, and id2label .* names 2"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(
    tmp_path: pathlib.Path, tensors: dict[str, np.ndarray], change: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        load.read(write(tmp_path, tensors, **change))


def test_activations(tmp_path: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    for name, ours in [("gelu_new", "gelu_tanh"), ("gelu_pytorch_tanh", "gelu_tanh"), ("relu", "relu")]:
        assert load.read(write(tmp_path, tensors, hidden_act=name)).spec.activation == ours


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("pooler.", "pooler.dense.weight is missing, which the next-sentence head needs"),
        ("cls.predictions.bias", "cls.predictions.bias is missing, though others of the token head"),
        ("encoder.layer.1.output.dense", r"encoder.layer.1.output.dense.weight is missing, the first of 2 "),
    ],
)
def test_missing_arrays(
    tmp_path: pathlib.Path, tensors: dict[str, np.ndarray], missing: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        load.read(write(tmp_path, {k: x for k, x in tensors.items() if not k.startswith(missing)}))


def test_files_that_cannot_be_read(tmp_path: pathlib.Path, tensors: dict[str, np.ndarray]) -> None:
    untied = tensors | {"cls.predictions.decoder.weight": np.ones((V, D), np.float32)}
    with pytest.raises(ValueError, match=r"decoder\.weight is not the word table"):
        load.read(write(tmp_path / "untied", untied))
    folder = write(tmp_path / "cut", tensors)
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        load.read(folder)
    folder = write(tmp_path / "pickle", {})
    trace = tmp_path / "trace"  # of the pickle's own code, which must not run, PyTorch or not
    (folder / "pytorch_model.bin").write_bytes(f"cos\nsystem\n(S'touch {trace}'\ntR.".encode())
    with pytest.raises(ValueError, match=r"(is a pickle|cannot be read as weights).* save_pretrained"):
        load.read(folder)
    assert not trace.exists()
    with pytest.raises(ValueError, match=r"holds no model: neither model\.json with checkpoints/"):
        load.read(write(tmp_path / "weightless", {}))
    foreign = write(tmp_path / "foreign", tensors, model_type="gpt2")
    (foreign / "vocab.txt").unlink()  # told by what it is, not by what its vocabulary lacks
    with pytest.raises(ValueError, match="has model_type 'gpt2'"):
        load.read(foreign)
    with pytest.raises(ValueError, match="is no directory"):
        load.read(tmp_path / "nowhere")
    folder = write(tmp_path / "vocabulary", tensors)
    (folder / "vocab.txt").write_text("\n".join([*WORDS, "more"]) + "\n")
    with pytest.raises(ValueError, match="its vocabulary has 31 tokens and its model 30"):
        load.read(folder)


@pytest.fixture(scope="module")
def states(minilm: pathlib.Path, test_data: pathlib.Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens and real positions of 20 sentences of CoLA's dev set, and their last hidden states."""
    lines = (test_data / "glue/CoLA/dev.tsv").read_text(encoding="utf-8").splitlines()[:20]
    model, params, tokenizer = bert_jax.load(minilm)
    rows = [tokenizer.encode(line.split("\t")[3]).ids for line in lines]
    tokens = np.zeros((20, max(map(len, rows))), np.int32)
    for row, ids in zip(tokens, rows, strict=True):
        row[: len(ids)] = ids
    real = (tokens > 0).astype(np.int32)
    batch = {"tokens": tokens, "segment_ids": real}
    hidden = jax.jit(lambda p, b: model.apply({"params": p}, b, method="hidden"))(params, batch)
    return tokens, real, np.asarray(hidden)


def test_real_weights_against_numpy(
    minilm: pathlib.Path, states: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> None:
    tokens, real, hidden = states
    want = bert(load_file(minilm / "model.safetensors"), tokens, real, np.zeros_like(tokens), 6, 12)
    assert np.abs(hidden - want)[real == 1].max() < 1e-5
    assert np.abs(want[real == 1]).mean() > 0.1  # not a comparison of nothing


@pytest.mark.filterwarnings("ignore")  # theirs, not ours
def test_real_weights_against_pytorch(
    minilm: pathlib.Path, states: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch, the reference, is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tokens, real, hidden = states
    peer = transformers.BertModel.from_pretrained(str(minilm)).eval()
    with torch.no_grad():
        want = peer(torch.tensor(tokens), attention_mask=torch.tensor(real)).last_hidden_state.numpy()
    difference = np.abs(hidden - want)[real == 1].max()
    print(f"largest difference to PyTorch: {difference:.2e}")
    assert difference < 1e-4
