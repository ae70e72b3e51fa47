"""Compiled forward passes: they say what the model says, at any size, without this package."""

import dataclasses
import json
import pathlib
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tiny_models
from etils import epath
from jax import export

from bert_jax import convert
from bert_jax.data import tokenizer as tokenizer_lib
from bert_jax.interop.export import ExportError
from bert_jax.models.model import Model

FORWARD = "forward.jax_export"
HEADS: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "mlm-nsp": ({}, {"has_mlm": True, "has_nsp": True}, {"hidden", "mlm_logits", "nsp_logits", "pooled"}),
    "tta": ({"kind": "tta"}, {"has_mlm": True}, {"hidden", "tta_logits"}),
    "modern": (
        {"position": "rotary", "norm": "pre", "gated": True, "local_window": 4, "global_every": 2},
        {"has_mlm": True},
        {"hidden", "mlm_logits"},
    ),
    "prefix": ({"mask": "prefix"}, {"has_mlm": True}, {"hidden", "prefix_logits"}),
    "classes": ({}, {"has_mlm": False, "labels": 3}, {"hidden", "logits", "pooled"}),
    "relation": ({}, {"has_mlm": False, "labels": 3, "marked": 2}, {"hidden", "logits"}),
    "crf": (
        {},
        {"has_mlm": False, "token_labels": 3, "token_head": "bilstm_crf", "lstm_size": 8},
        {"hidden", "token_labels_logits", "tags"},
    ),
    "span": ({}, {"has_mlm": False, "has_span": True}, {"hidden", "span_logits"}),
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> tokenizer_lib.Tokenizer:
    return tiny_models.tokenizer(tmp_path_factory.mktemp("vocabulary"))


def inputs(signature: dict[str, Any], rows: int, length: int) -> dict[str, np.ndarray]:
    """Random tokens, the last row with padding behind."""
    rng = np.random.default_rng(length)
    made = {"tokens": rng.integers(5, 12, (rows, length)), "segment_ids": np.ones((rows, length))}
    made["segment_ids"][-1, length - 1 :] = 0
    made["type_ids"] = rng.integers(0, 2, (rows, length))
    for name, x in signature["inputs"].items():
        if name == "prefix":
            made[name] = np.arange(length)[None] < np.full((rows, 1), 2)
        elif name not in made:
            made[name] = np.full((rows, x["shape"][1]), 1 if name == "marked_positions" else 3)
    return {name: x.astype(np.int32) for name, x in made.items()}


@pytest.mark.parametrize("name", HEADS)
def test_it_says_what_the_model_says(name: str, tmp_path: pathlib.Path, tokenizer: Any) -> None:
    config, heads, outputs = HEADS[name]
    made = tiny_models.source(tokenizer, heads=heads, **config)
    target = tmp_path / "served"
    convert.convert(made, epath.Path(tmp_path), target, "stablehlo", platforms=("cpu",))
    assert {file.name for file in target.iterdir()} == {FORWARD, "signature.json", "tokenizer", "README.md"}
    signature = json.loads((target / "signature.json").read_text())
    assert {*signature["outputs"]} == outputs
    served = export.deserialize((target / FORWARD).read_bytes())
    for rows, length in ((2, 7), (1, 20)):
        batch = inputs(signature, rows, length)
        found = served.call(batch)
        want = Model(made.spec).apply({"params": made.params}, batch)
        for key in outputs - {"pooled"}:
            assert str(found[key].dtype) == signature["outputs"][key]["dtype"]
            expected = want[key][..., : made.spec.vocab_size] if key.endswith("_logits") else want[key]
            np.testing.assert_allclose(found[key], expected, atol=2e-5, rtol=1e-5, err_msg=key)


def test_a_generator_is_left_behind(tmp_path: pathlib.Path, tokenizer: Any) -> None:
    discriminator = tiny_models.source(tokenizer, heads={"has_mlm": False, "has_rtd": True})
    both = dataclasses.replace(discriminator.spec, has_mlm=True, has_generator=True)
    made = dataclasses.replace(
        discriminator, spec=both, params={**discriminator.params, "generator": {"word": np.ones(3)}}
    )
    convert.convert(made, epath.Path(tmp_path), tmp_path / "served", "stablehlo", platforms=("cpu",))
    served = export.deserialize((tmp_path / "served" / FORWARD).read_bytes())
    batch = inputs({"inputs": {}}, 2, 7)
    want = Model(discriminator.spec).apply({"params": discriminator.params}, batch)
    found = served.call(batch)
    assert found.keys() == want.keys() == {"hidden", "rtd_logits"}
    np.testing.assert_allclose(found["rtd_logits"], want["rtd_logits"], atol=2e-5)


def test_a_process_without_this_package_runs_what_its_page_shows(
    tmp_path: pathlib.Path, tokenizer: Any
) -> None:
    made = tiny_models.source(tokenizer, heads={"has_mlm": False, "labels": 2})
    made = dataclasses.replace(made, labels=("no", "yes"))
    target = tmp_path / "served"
    convert.convert(made, epath.Path(tmp_path), target, "stablehlo", outputs=["logits"], seq_len=6)
    signature = json.loads((target / "signature.json").read_text())
    assert signature["labels"] == ["no", "yes"] and {*signature["outputs"]} == {"logits"}
    assert signature["inputs"]["tokens"]["shape"] == ["B", 6] and signature["longest"] == 6
    assert signature["platforms"] == ["cpu", "cuda", "rocm", "tpu"]
    ids = [[2, 5, 6, 7, 8, 3]]
    code = re.search("```python\n(.*?)```", (target / "README.md").read_text(), re.DOTALL)[1]
    assert "[[...]]" in code and '"PATH"' in code
    code = code.replace("[[...]]", str(ids)).replace('"PATH"', repr(str(target)))
    code = f"import sys\nsys.modules['bert_jax'] = None\n{code}\nprint(outputs['logits'].tolist())"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    want = Model(made.spec).apply({"params": made.params}, {"tokens": np.array(ids, np.int32)})["logits"]
    np.testing.assert_allclose(json.loads(done.stdout), want, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outputs": ["logit"]}, "--outputs=logit: the model has hidden, mlm_logits"),
        ({"seq_len": 21}, "--seq_len=21: the model has 20 positions"),
    ],
)
def test_what_cannot_be_is_refused(
    options: dict[str, Any], message: str, tmp_path: pathlib.Path, tokenizer: Any
) -> None:
    made = tiny_models.source(tokenizer, heads={"has_mlm": True})
    with pytest.raises(ExportError, match=message):
        convert.convert(made, epath.Path(tmp_path), tmp_path / "served", "stablehlo", **options)
    assert not [*tmp_path.iterdir()]
