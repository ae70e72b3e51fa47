"""T-TA fine-tuned, with and without the diagonal of its mask."""

import dataclasses
import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tasks_data
import tiny_models

from bert_jax import config as config_lib
from bert_jax import convert, predict, train
from bert_jax.config import ConfigError
from bert_jax.interop import export, load
from bert_jax.models.model import Model

ROWS = np.array(
    [[2, 5, 6, 8, 9, 3, 0, 0], [2, 7, 11, 12, 14, 15, 16, 3]], np.int32
)  # no token twice in a row


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> load.Source:
    tokenizer = tiny_models.tokenizer(tmp_path_factory.mktemp("vocabulary"))
    return tiny_models.source(tokenizer, kind="tta", segments=0)


@pytest.mark.parametrize("see_self", [False, True])
@pytest.mark.parametrize("query", ["position", "mask_token"])
def test_a_state_depends_on_its_own_token_only_when_the_diagonal_is_lifted(
    given: load.Source, see_self: bool, query: str
) -> None:
    """By gradients of each state with respect to each token's row of the word table."""
    spec = dataclasses.replace(given.spec, see_self=see_self, tta_query=query, has_mlm=False)
    mixture = np.random.default_rng(0).normal(size=spec.hidden_size).astype(np.float32)
    encoder = jax.tree.map(jnp.asarray, given.params["encoder"])

    def states(word: jax.Array) -> jax.Array:
        params = {"encoder": {**encoder, "word": word}}
        batch = {"tokens": ROWS, "segment_ids": (ROWS > 0).astype(np.int32)}
        return jnp.einsum("BSD,D->BS", Model(spec).apply({"params": params}, batch)["hidden"], mixture)

    moved = jax.jit(jax.jacrev(states))(encoder["word"])  # (B, S, V, E)
    moved = np.abs(np.asarray(moved)).max(axis=-1)
    for row, tokens in enumerate(ROWS):
        length = int((tokens > 0).sum())
        found = moved[row][:length][:, tokens[:length]] > 0  # (i, j): does state i see token j
        expected = np.ones((length, length), bool) if see_self else ~np.eye(length, dtype=bool)
        np.testing.assert_array_equal(found, expected)


# Forms of tasks: name, files, keys, metric, what a prediction has.
SENTENCES = ["the cat sat", "cat the sat", "a dog runs .", "dog a on", "the mat", "mat the ."]
COLA = "".join(f"x\t{(i + 1) % 2}\t\t{s}\n" for i, s in enumerate(SENTENCES))
STSB = "index\tgenre\tsentence1\tsentence2\tscore\n" + "".join(
    f"{i}\tg\t{s}\t{SENTENCES[(i * 2) % 6]}\t{i % 6}.5\n" for i, s in enumerate(SENTENCES[:5])
)
NER = "".join(f"{'dogs' if i % 2 else 'the'} {'B-X' if i % 2 else 'O'}\ncat O\n\n" for i in range(6))
FORMS: dict[str, Any] = {
    "cola": ({"train.tsv": COLA, "dev.tsv": COLA}, "mcc", ["the cat sat"], {"label", "probabilities"}),
    "stsb": ({"train.tsv": STSB, "dev.tsv": STSB}, "pearson_spearman", [("the cat", "a mat")], {"score"}),
    "ner": ({"train.conll": NER, "dev.conll": NER}, "f1", ["dogs sat"], {"tags", "entities"}),
}


def task_config(tmp_path: pathlib.Path, name: str, source: load.Source, **keys: Any) -> Any:
    data = tmp_path / "data"
    data.mkdir(exist_ok=True)
    for file, text in FORMS[name][0].items():
        (data / file).write_text(text)
    model = tmp_path / "model"
    if not model.exists():
        tiny_models.save(model, source)
    c = tasks_data.config(name, data)
    c.init_from, c.train.steps, c.data.workers, c.model.scan = str(model), 150, 1, True
    c.train.batch_size, c.optimizer.learning_rate = 6, 1e-2
    c.task.dropout = c.model.dropout = c.model.attention_dropout = 0.0
    c.train.compilation_cache = str(tmp_path.parent / "compiled")
    for key, value in keys.items():
        c.task[key] = value
    config_lib.validate(c)
    return c


@pytest.mark.parametrize(
    ("name", "keys", "see_self", "pooling"),
    [
        ("cola", {}, False, "mean"),
        ("stsb", {"see_self": True, "pooling": "first"}, True, "first"),
        ("ner", {}, True, "mean"),
    ],
)
def test_fine_tuning(
    tmp_path: pathlib.Path, given: load.Source, name: str, keys: dict[str, Any], see_self: bool, pooling: str
) -> None:
    _, metric, texts, fields = FORMS[name]
    result = train.train(task_config(tmp_path, name, given, **keys), tmp_path / "run")
    assert result["metric"] == metric
    assert result["value"] > 0.7  # it is learnt by heart
    described = json.loads((tmp_path / "run/model.json").read_text())
    assert (described["kind"], described["see_self"], described["pooling"]) == ("tta", see_self, pooling)

    source = load.read(tmp_path / "run")
    assert (source.spec.see_self, source.spec.pooling) == (see_self, pooling)
    said = list(predict.predict(source, texts))
    assert fields <= set(said[0])
    target = tmp_path / "native"
    convert.convert(source, tmp_path / "run", target, "native")
    assert list(predict.predict(load.read(target), texts)) == said
    with pytest.raises(export.ExportError, match=r"model\.kind = 'tta'") as error:
        convert.convert(source, tmp_path / "run", tmp_path / "hf", "hf")
    assert "native" in str(error.value)
    # The other mask answers otherwise: the field is what is read.
    other = dataclasses.replace(source, spec=dataclasses.replace(source.spec, see_self=not see_self))
    if name != "ner":
        assert list(predict.predict(other, texts)) != said


def test_a_run_of_a_task_may_be_gone_on_with_and_its_mask_is_no_other(
    tmp_path: pathlib.Path, given: load.Source
) -> None:
    c = task_config(tmp_path, "cola", given)
    c.train.steps = 1
    train.train(c, tmp_path / "run")
    c.task.see_self = True
    with pytest.raises(ConfigError, match=r"task.see_self: None -> True"):
        train.train(c, tmp_path / "run")


def test_an_encoder_pools_as_the_task_asks(tmp_path: pathlib.Path, given: load.Source) -> None:
    made = tiny_models.source(given.tokenizer)
    c = task_config(tmp_path, "cola", made, pooling="mean")
    c.train.steps = 1
    train.train(c, tmp_path / "run")
    assert load.read(tmp_path / "run").spec.pooling == "mean"
    with pytest.raises(ConfigError, match=r"task\.see_self = False is of T-TA, and the model is an encoder"):
        train.train(task_config(tmp_path, "cola", made, see_self=False), tmp_path / "other")


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("cola", {"task__see_self": True}, "task.see_self = True is of T-TA"),
        ("cola", {"task__pooling": "last"}, "task.pooling = 'last': it must be one of"),
        ("ner", {"task__pooling": "mean"}, 'task.pooling = "mean" makes one vector of a text'),
        ("cola", {"task__pooling": "mean", "model__pooling": "attention"}, "set one of them"),
    ],
)
def test_values_that_do_not_fit(name: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        tasks_data.config(name, "somewhere", **keys)
