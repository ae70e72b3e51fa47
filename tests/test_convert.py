"""Models written in other forms: the same model when read again, refusals, and whole or nothing."""

import dataclasses
import json
import pathlib
import subprocess
import sys
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from etils import epath
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from bert_jax import config as config_lib
from bert_jax import convert
from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.interop import card, load
from bert_jax.interop.export import ExportError
from bert_jax.interop.families.table import unused
from bert_jax.models.model import Model
from bert_jax.models.spec import ModelSpec, to_json

ROOT = pathlib.Path(__file__).parents[1]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "dog", "sat", "run", "##s", "."]
# The padding token is the second, as RoBERTa has it.
ROBERTA_WORDS = ["[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]", *WORDS[5:]]
SMALL = ModelSpec(
    vocab_size=len(WORDS), mask_id=4, hidden_size=16, layers=3, heads=2, feed_forward_size=24,
    max_positions=20,
)  # fmt: skip
ELECTRA = {"embedding_size": 8, "has_mlm": False, "has_rtd": True, "has_generator": True,
           "generator_fraction": 0.5}  # fmt: skip
MODERN = {"segments": 0, "position": "rotary", "rope_layout": "half", "rope_theta": 160_000.0, "norm": "pre",
          "first_norm": False, "gated": True, "bias": False, "norm_eps": 1e-5, "local_window": 4,
          "global_every": 2, "pooler": "norm"}  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> tokenizer_lib.Tokenizer:
    return tokenizer_of(tmp_path_factory.mktemp("vocabulary"), WORDS)


def tokenizer_of(folder: pathlib.Path, words: list[str]) -> tokenizer_lib.Tokenizer:
    (folder / "vocab.txt").write_text("\n".join(words))
    return tokenizer_lib.load(folder / "vocab.txt", lowercase=True)


def batch(spec: ModelSpec) -> dict[str, jax.Array]:
    made = {
        "tokens": jnp.array([[2, 5, 4, 7, 3], [2, 8, 3, 0, 0]]),
        "segment_ids": jnp.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
    }
    if spec.has_generator:
        made |= {"mlm_positions": jnp.array([[2], [1]]), "mlm_labels": jnp.array([[6], [8]])}
        made["mlm_weights"] = jnp.ones((2, 1))
    return made


def source(tokenizer: Any, spec: ModelSpec, labels: tuple[str, ...] = ()) -> load.Source:
    """A model of random weights, the rows of no word too, none of them small."""
    streams = {name: jax.random.key(0) for name in ("params", "sample")}
    shapes = jax.eval_shape(Model(spec).init, streams, batch(spec))
    rng = np.random.default_rng(1)
    params = jax.tree.map(lambda x: rng.normal(size=x.shape).astype(np.float32), nn.unbox(shapes)["params"])
    return load.Source(spec, params, tokenizer, labels, [])


def answers(made: load.Source) -> dict[str, Any]:
    model = Model(made.spec)
    return model.apply({"params": made.params}, batch(made.spec), rngs={"sample": jax.random.key(1)})


def meaning(spec: ModelSpec) -> dict[str, Any]:
    """What of a spec has an effect on what is computed."""
    values = dataclasses.asdict(spec) | {"has_pooler": spec.pools}
    without = unused(spec) | {"generator_fraction", "attention_kernel", "attention_block"}
    return {name: value for name, value in values.items() if name not in without}


def same(a: load.Source, b: load.Source) -> None:
    """Checks that the models are equal to the bit: rows of no word aside, which nothing sees."""
    assert meaning(a.spec) == meaning(b.spec) and a.labels == b.labels
    assert a.tokenizer.digest() == b.tokenizer.digest()
    assert jax.tree.structure(a.params) == jax.tree.structure(b.params)
    size = a.spec.vocab_size

    def check(path: Any, x: np.ndarray, y: np.ndarray) -> None:
        name = jax.tree_util.keystr(path, simple=True, separator="/").removeprefix("generator/")
        if name in ("encoder/word", "token_head/bias"):
            x, y = x[:size], y[:size]
        if name == "token_head/kernel":
            x, y = x[:, :size], y[:, :size]
        np.testing.assert_array_equal(x, y, err_msg=name)

    jax.tree_util.tree_map_with_path(check, a.params, b.params)


@pytest.mark.parametrize(
    "change",
    [
        {"has_nsp": True},
        {"kind": "tta", "tta_query": "mask_token", "mlm_head": "plain"},
        {"embedding_size": 8, "share_layers": True, "has_mlm": False, "labels": 3},
        ELECTRA,
        {"attention": "random", "mask": "causal", "nsp_head": "single", "has_nsp": True},
        {"token_labels": 3, "has_mlm": False},
        {"has_span": True, "has_mlm": False, "norm": "pre"},
    ],
    ids=lambda change: "-".join(change),
)
def test_a_model_directory_is_the_same_model(
    tmp_path: pathlib.Path, tokenizer: Any, change: dict[str, Any]
) -> None:
    spec = dataclasses.replace(SMALL, **change)
    made = source(tokenizer, spec, ("no", "yes", "maybe") if spec.labels or spec.token_labels else ())
    target = tmp_path / "model"
    convert.convert(made, epath.Path(tmp_path), target, "native")
    read = load.read(target)
    assert read.spec == spec
    same(made, read)
    if spec.has_generator:
        want, found = answers(made), answers(read)
        assert want.keys() == found.keys() >= {"mlm_logits", "rtd_logits"}
        for name, value in want.items():
            np.testing.assert_array_equal(value, found[name], err_msg=name)
    assert load_file(target / "model.safetensors")["encoder/word"].shape[0] == len(WORDS)
    assert {file.name for file in target.iterdir()} == {
        "README.md",
        "model.json",
        "model.safetensors",
        "tokenizer",
    }
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_damaged_model_directory_is_refused(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    made = source(tokenizer, SMALL)
    convert.convert(made, epath.Path(tmp_path), tmp_path / "model", "native")
    file = tmp_path / "model/model.safetensors"
    whole, tensors = file.read_bytes(), load_file(file)

    file.write_bytes(whole[:-5])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        load.read(tmp_path / "model")
    save_file({name: x for name, x in tensors.items() if name != "encoder/position"}, file)
    with pytest.raises(ValueError, match=r"encoder/position has the shape none, .* asks for \(20, 16\)"):
        load.read(tmp_path / "model")
    file.write_bytes(whole)
    (tmp_path / "model/model.json").write_text(to_json(dataclasses.replace(SMALL, vocab_size=13)))
    with pytest.raises(ValueError, match=r"encoder/word has the shape \(12, 16\), .* asks for \(128, 16\)"):
        load.read(tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"has_nsp": True}, "BertForPreTraining"),
        ({}, "BertForMaskedLM"),
        ({"has_mlm": False}, "BertModel"),
        ({"has_mlm": False, "labels": 3}, "BertForSequenceClassification"),
        ({"position_offset": 2, "segments": 1}, "RobertaForMaskedLM"),
        ({"has_mlm": False, "position_offset": 2, "token_labels": 3}, "RobertaForTokenClassification"),
        ({"share_layers": True, "embedding_size": 8, "has_nsp": True}, "AlbertForPreTraining"),
        ({"share_layers": True}, "AlbertForMaskedLM"),
        ({"embedding_size": 8}, "ElectraForMaskedLM"),
        ({"has_mlm": False, "has_rtd": True, "activation": "relu"}, "ElectraForPreTraining"),
        ({"segments": 0}, "DistilBertForMaskedLM"),
        (
            {"segments": 0, "has_mlm": False, "labels": 3, "pooler": "relu"},
            "DistilBertForSequenceClassification",
        ),
        ({"position": "rotary", "embedding_size": 8}, "RoFormerForMaskedLM"),
        (
            {"position": "rotary", "has_mlm": False, "labels": 3, "pooler": "gelu"},
            "RoFormerForSequenceClassification",
        ),
        (MODERN, "ModernBertForMaskedLM"),
        (MODERN | {"pooling": "attention"}, "ModernBertForMaskedLM"),
        ({"attention_kernel": "dense", "attention_block": 64}, "BertForMaskedLM"),
        (
            MODERN | {"bias": True, "local_window": 0, "pooling": "mean", "has_mlm": False, "labels": 3},
            "ModernBertForSequenceClassification",
        ),
        (MODERN | {"has_mlm": False, "has_span": True}, "ModernBertForQuestionAnswering"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_hugging_face_directory_is_the_same_model(
    tmp_path: pathlib.Path, change: dict[str, Any], name: str
) -> None:
    folder = tmp_path / "vocabulary"
    folder.mkdir()
    tokenizer = tokenizer_of(folder, ROBERTA_WORDS if name.startswith("Roberta") else WORDS)
    spec = dataclasses.replace(SMALL, mask_id=tokenizer.mask_id, **change)
    made = source(tokenizer, spec, ("no", "yes", "maybe") if spec.labels or spec.token_labels else ())
    if not spec.first_norm:  # a norm that is not used, and has no place there
        for key, value in made.params["encoder"]["layers"]["attention_norm"].items():
            value[0] = key == "scale"
    target = tmp_path / "model"
    lines = convert.convert(made, epath.Path(tmp_path), target, "hf")
    assert lines == [f"{target}: {name}"]
    config = json.loads((target / "config.json").read_text())
    assert config["architectures"] == [name]
    assert (config["vocab_size"], config["pad_token_id"]) == (len(WORDS), tokenizer.pad_id)
    with safe_open(target / "model.safetensors", "np") as file:
        assert file.metadata() == {"format": "pt"}
    same(made, load.read(target))


def test_electra_is_written_as_two_models(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    spec = dataclasses.replace(SMALL, **ELECTRA)
    made = source(tokenizer, spec)
    target = tmp_path / "model"
    assert convert.convert(made, epath.Path(tmp_path), target, "hf") == [f"{target}: ElectraForPreTraining"]
    discriminator, generator = load.read(target), load.read(target / "generator")
    assert meaning(discriminator.spec) == meaning(dataclasses.replace(spec, has_generator=False))
    assert (generator.spec.hidden_size, generator.spec.heads) == (8, 1)

    text = batch(spec)
    found = Model(generator.spec).apply({"params": generator.params}, text)["mlm_logits"]
    np.testing.assert_allclose(found, answers(made)["mlm_logits"], atol=1e-5)
    plain, own = Model(discriminator.spec), {k: x for k, x in made.params.items() if k != "generator"}
    shown = {"tokens": text["tokens"], "segment_ids": text["segment_ids"]}
    want, read = (plain.apply({"params": p}, shown)["rtd_logits"] for p in (own, discriminator.params))
    np.testing.assert_array_equal(want, read)


@pytest.mark.parametrize(
    ("change", "family", "message"),
    [
        ({"kind": "tta"}, "", "nearest is bert: model.kind = 'tta', and a bert has 'encoder'.*=native"),
        ({"mask": "causal"}, "", "model.mask = 'causal', and a bert has 'full'"),
        ({"mask": "prefix"}, "", "model.mask = 'prefix', and a bert has 'full'"),
        ({"attention": "random"}, "", "model.attention = 'random', and a bert has 'dot'"),
        ({"norm": "pre"}, "", "nearest is modernbert: model.gated = False, and a modernbert has True"),
        ({"position": "sinusoidal"}, "", "model.position = 'sinusoidal', and a bert has 'learned'"),
        ({"position": "rotary", "rope_layout": "half"}, "", "is roformer: model.rope_layout = 'half'"),
        ({"position": "rotary", "rope_theta": 500.0}, "", "model.rope_theta = 500.0, and .* has 10000.0"),
        ({"mlm_head": "plain"}, "", "model.mlm_head = 'plain', and a bert has 'tied'"),
        ({"nsp_head": "single", "has_nsp": True}, "", "model.nsp_head = 'single', and a bert has 'pooled'"),
        ({"gated": True}, "", "model.gated = True, and a bert has False"),
        ({"labels": 2, "pooling": "mean"}, "", "model.pooling = 'mean', and a bert has 'first'"),
        ({"position_offset": 2}, "", "nearest is roberta: model.position_offset = 2, .* which is 1 for this"),
        ({"share_layers": True, "pooler": "relu", "labels": 2}, "", "nearest is albert: model.pooler"),
        ({"embedding_size": 8, "activation": "relu"}, "electra", 'activation = "relu", and the token head'),
        ({"segments": 0}, "bert", "cannot be written as bert: model.segments = 0, and a bert has at least 1"),
        ({}, "distilbert", "cannot be written as distilbert: model.segments = 2, and a distilbert has 0"),
        (
            {"has_nsp": True, "position_offset": 1},
            "roberta",
            "it has no class with next-sentence head and token head",
        ),
        ({"labels": 2}, "", "it has no class with classifier and token head"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_no_class_computes_is_refused(
    tmp_path: pathlib.Path, tokenizer: Any, change: dict[str, Any], family: str, message: str
) -> None:
    made = source(tokenizer, dataclasses.replace(SMALL, **change))
    with pytest.raises(ExportError, match=message):
        convert.convert(made, epath.Path(tmp_path), tmp_path / "model", "hf", family)
    assert list(tmp_path.iterdir()) == []


def test_a_pooler_without_a_place_is_told(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    made = source(tokenizer, dataclasses.replace(SMALL, has_pooler=True))
    lines = convert.convert(made, epath.Path(tmp_path), tmp_path / "model", "hf")
    assert lines[1:] == [
        f"left out, since BertForMaskedLM has no such: pooler/dense/{name}" for name in ("bias", "kernel")
    ]
    assert not load.read(tmp_path / "model").spec.has_pooler


def test_whole_or_nothing(tmp_path: pathlib.Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made, target = source(tokenizer, SMALL), tmp_path / "model"
    target.mkdir()
    convert.convert(made, epath.Path(tmp_path), target, "native")  # into an empty directory
    with pytest.raises(FileExistsError, match="is there already"):
        convert.convert(made, epath.Path(tmp_path), target, "hf")
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="is there already"):
        convert.convert(made, epath.Path(tmp_path), tmp_path / "file", "hf")

    def fail(*arguments: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(card, "write", fail)
    with pytest.raises(OSError, match="no space left"):
        convert.convert(made, epath.Path(tmp_path), tmp_path / "other", "hf")
    assert {path.name for path in tmp_path.iterdir()} == {"model", "file"}


def test_the_card_tells_what_a_run_was(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    origin, folder = tmp_path / "run", tmp_path / "model"
    origin.mkdir()
    config = config_lib.default()
    config.data.source, config.data.path, config.train.steps, config.seed = "text", "/home/me/novels", 70, 5
    (origin / "config.json").write_text(config_lib.to_json(config))
    (origin / "model.json").write_text(to_json(SMALL))
    (origin / "result.json").write_text(
        json.dumps({"metric": "loss", "value": 1.2345678, "mlm_accuracy": None})
    )
    made = source(tokenizer, SMALL)
    convert.convert(made, epath.Path(origin), folder, "native")
    text = (folder / "README.md").read_text()
    count = sum(x.size for x in load_file(folder / "model.safetensors").values())
    for line in (
        "# model", f"A transformer encoder of {count:,} parameters", "| layers | 3 |", "| tokens | 12 |",
        "| objective | mlm (weight 1) |", "| text | text (novels) |", "| duration | 70 steps |",
        "| seed | 5 |", "| value | 1.2346 |", 'bert_jax.load("PATH")',
    ):  # fmt: skip
        assert line in text
    assert "/home" not in text and "mlm accuracy" not in text


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bert_jax.convert", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_command(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    made = source(tokenizer, SMALL)
    convert.convert(made, epath.Path(tmp_path), tmp_path / "model", "native")
    result = run(f"--source={tmp_path}/model", f"--target={tmp_path}/hf", "--format=hf")
    assert result.returncode == 0, result.stderr
    assert result.stderr.splitlines()[-1] == f"{tmp_path}/hf: BertForMaskedLM"
    same(made, load.read(tmp_path / "hf"))


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (["--help"], 0, "Writes a model in another form"),
        (["--source=x", "--target=y"], 2, "error: --format is required; see --help"),
        (["--source=x", "--target=y", "--format=onnx"], 2, "value should be one of <native|hf|stablehlo>"),
        (["--source=x", "--target=y", "--format=hf", "--seq_len=8"], 2, "are for --format=stablehlo"),
        (["--source=x", "--target=y", "--format=hf", "--to=z"], 2, "Unknown command line flag 'to'"),
        (["--source=x", "--target=y", "--format=native", "--family=bert"], 2, "--family=bert is for"),
        (["--source=/nowhere", "--target=y", "--format=native"], 2, "/nowhere is no directory"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)  # fmt: skip
def test_command_line(arguments: list[str], code: int, line: str, tmp_path: pathlib.Path) -> None:
    result = run(*(a.replace("--target=y", f"--target={tmp_path}/y") for a in arguments))
    assert result.returncode == code
    assert line in (result.stdout if code == 0 else result.stderr)
    assert code == 0 or len(result.stderr.splitlines()) == 1, result.stderr
