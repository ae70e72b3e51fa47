"""Distillation: against NumPy, with a student that is its teacher, and from a teacher directory."""

import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small

from bert_jax import adopt, config, train
from bert_jax.models.spec import ModelSpec
from bert_jax.objectives.distill import HiddenCosine, SoftTargets

VOCAB = 6


def _parts() -> tuple[dict[str, jax.Array], dict[str, jax.Array]]:
    rng = np.random.default_rng(0)
    batch = {
        "segment_ids": jnp.array([[1, 1, 1, 0], [1, 1, 2, 2]]),
        "mlm_labels": jnp.array([[1, 2], [3, 0]]),
        "mlm_weights": jnp.array([[1.0, 1.0], [1.0, 0.0]]),
    }
    outputs = {
        name: jnp.asarray(rng.normal(size=shape).astype(np.float32))
        for name, shape in {
            "mlm_logits": (2, 2, VOCAB), "teacher_mlm_logits": (2, 2, VOCAB),
            "hidden": (2, 4, 5), "teacher_hidden": (2, 4, 5),
        }.items()
    }  # fmt: skip
    return batch, outputs


def _config(temperature: float = 2.0) -> Any:
    c = config.default().objective.distill
    c.weight, c.cosine, c.temperature = 5.0, 1.0, temperature
    return c


def _softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 5.0])
def test_soft_targets_equal_numpy(temperature: float) -> None:
    batch, outputs = _parts()
    counts = np.array([0, 5, 3, 2, 0, 0])
    found = SoftTargets(_config(temperature), counts).sums(batch, outputs)
    teacher, student = (np.asarray(outputs[n], np.float64) for n in ("teacher_mlm_logits", "mlm_logits"))
    p, q = _softmax(teacher / temperature), _softmax(student / temperature)
    weights = np.asarray(batch["mlm_weights"])
    divergence = temperature**2 * (p * np.log(p / q)).sum(axis=-1)
    np.testing.assert_allclose(found["loss"], (divergence * weights).sum(), rtol=1e-5)
    unigram = _softmax(np.log((counts + 1) / (counts + 1).sum()) / temperature)
    blind = temperature**2 * (p * np.log(p / unigram)).sum(axis=-1)
    np.testing.assert_allclose(found["unigram_loss"], (blind * weights).sum(), rtol=1e-5)
    labels = np.asarray(batch["mlm_labels"])[..., None]
    own = -np.log(np.take_along_axis(_softmax(teacher), labels, axis=-1))[..., 0]
    np.testing.assert_allclose(found["teacher_loss"], (own * weights).sum(), rtol=1e-5)


def test_padded_rows_of_the_vocabulary_cost_nothing() -> None:
    batch, outputs = _parts()
    expected = SoftTargets(_config(), np.ones(VOCAB)).sums(batch, outputs)
    padded = {
        name: jnp.pad(x, ((0, 0), (0, 0), (0, 2)), constant_values=-1e9) if "logits" in name else x
        for name, x in outputs.items()
    }
    found = SoftTargets(_config(), np.ones(VOCAB)).sums(batch, padded)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6, err_msg=name)


def test_cosine_equals_numpy() -> None:
    batch, outputs = _parts()
    a, b = (np.asarray(outputs[n], np.float64) for n in ("hidden", "teacher_hidden"))
    cosine = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
    expected = ((1 - cosine) * (np.asarray(batch["segment_ids"]) > 0)).sum()
    objective = HiddenCosine(_config())
    np.testing.assert_allclose(objective.sums(batch, outputs)["loss"], expected, rtol=1e-5)
    assert float(objective.count(batch)) == 7
    gradient = jax.grad(
        lambda h: objective.sums(batch, {**outputs, "hidden": h})["loss"]
    )(jnp.zeros((2, 4, 5)))  # fmt: skip
    assert np.isfinite(gradient).all()


def test_a_student_starts_from_evenly_taken_layers() -> None:
    teacher = ModelSpec(vocab_size=8, mask_id=4, layers=6)
    student = ModelSpec(vocab_size=8, mask_id=4, layers=3, segments=0)
    params = {
        "encoder": {"word": np.ones(2), "segment": np.ones(2), "layers": {"x": np.arange(6)}},
        "token_head": {"bias": np.ones(3)},
        "pooler": {"dense": np.ones(1)},
    }
    taken = adopt.of_teacher(params, teacher, student)
    np.testing.assert_array_equal(taken["encoder"]["layers"]["x"], [0, 2, 4])
    assert set(taken) == {"encoder", "token_head"} and "segment" not in taken["encoder"]
    with pytest.raises(ValueError, match=r"model\.heads = 12 and the teacher's is 6"):
        adopt.of_teacher(params, ModelSpec(vocab_size=8, mask_id=4, heads=6), student)


def test_distils_from_a_workdir(tmp_path: pathlib.Path) -> None:
    teacher = tmp_path / "teacher"
    train.train(small.config(tmp_path, **{"data.packing": True, "train.steps": 20}), teacher)
    c = small.config(tmp_path, **{
        "data.packing": True, "model.layers": 1, "model.segments": 0, "train.steps": 20,
        "objective.mlm.weight": 2.0, "objective.distill.weight": 5.0, "objective.distill.cosine": 1.0,
        "objective.distill.teacher": str(teacher), "train.eval_every": 10, "train.accumulation": 2,
    })  # fmt: skip
    result = train.train(c, tmp_path / "student")
    assert result["distill_loss"] < result["distill_unigram_loss"]
    assert 0 < result["cosine_loss"] < 1
    total = 2 * result["mlm_loss"] + 5 * result["distill_loss"] + result["cosine_loss"]
    np.testing.assert_allclose(result["loss"], total, rtol=1e-6)
    # The teacher, evaluated on the same text, says the same of the same masks.
    own = json.loads((teacher / "result.json").read_text())
    np.testing.assert_allclose(result["distill_teacher_loss"], own["mlm_loss"], rtol=1e-4)
    # Nothing of the teacher is in the student's checkpoint.
    import bert_jax

    _, params, _ = bert_jax.load(str(tmp_path / "student"))
    assert set(params) == {"encoder", "token_head"}


def test_a_teacher_without_token_head_is_refused(tmp_path: pathlib.Path) -> None:
    c = small.config(tmp_path, **{
        "data.packing": True, "train.steps": 3, "model.kind": "tta", "objective.mlm.weight": 0.0,
        "objective.tta.weight": 1.0,
    })  # fmt: skip
    train.train(c, tmp_path / "tta")
    c = small.config(tmp_path, **{
        "objective.distill.weight": 1.0, "objective.distill.teacher": str(tmp_path / "tta"),
    })  # fmt: skip
    with pytest.raises(ValueError, match="is no masked language model"):
        train.train(c, tmp_path / "student")
