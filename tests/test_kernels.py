"""Which implementation computes attention: what is chosen, what is refused, and what a saved model says."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
import tiny_models
from test_config import CAUSAL, PREFIX, make

from bert_jax import kernels
from bert_jax.config import ConfigError, validate
from bert_jax.models import spec as spec_lib
from bert_jax.models.attention import by_cudnn
from bert_jax.models.masks import Mask, attention_weights, dense

LONG = {"data__seq_len": 512, "model__attention_dropout": 0.0}
SHORT = {"data__seq_len": 128, "model__attention_dropout": 0.0}


@pytest.mark.parametrize(
    ("values", "platform", "kernel", "said"),
    [
        (LONG, "tpu", "splash", "by splash"),
        ({**LONG, **CAUSAL}, "tpu", "splash", "by splash"),
        ({**LONG, "train__phases": ((512, 30), (256, 30))}, "tpu", "splash", "by splash"),
        ({**LONG, **PREFIX}, "tpu", "auto", 'model.mask = "prefix"'),
        ({**LONG, "model__attention_dropout": 0.1}, "tpu", "auto", "model.attention_dropout = 0.1"),
        ({**LONG, "model__local_window": 64}, "tpu", "auto", "model.local_window = 64"),
        ({**LONG, "mesh__sequence": 2}, "tpu", "auto", "mesh.sequence = 2"),
        ({**LONG, "train__phases": ((512, 30), (200, 30))}, "tpu", "auto", "one is of 200"),
        (SHORT, "tpu", "auto", "all pairs at once"),
        (LONG, "cpu", "auto", "in blocks (splash is for TPU)"),
        ({**LONG, "model__attention_kernel": "dense"}, "tpu", "dense", "by dense, as asked"),
        (
            {**LONG, "model__attention_kernel": "cudnn", "model__dtype": "bfloat16"},
            "gpu", "cudnn", "by cudnn, as asked",
        ),
    ],
)  # fmt: skip
def test_auto_chooses_by_device_length_mask_and_dropout_and_says_which(values, platform, kernel, said):
    config = make(**values)
    validate(config)
    found, why = kernels.choose(config, platform)
    assert found == kernel and said in why


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model__attention_kernel": "splash"}, '"splash" cannot be had: it drops no weights'),
        ({**SHORT, **PREFIX, "model__attention_kernel": "splash"}, 'model.mask = "prefix"'),
        (
            {**SHORT, "model__attention_kernel": "cudnn"},
            'it computes in bfloat16, and model.dtype = "float32"',
        ),
    ],
)
def test_what_a_kernel_cannot_do_is_refused(values, said):
    with pytest.raises(ConfigError, match=said):
        validate(make(**values))


@pytest.mark.parametrize("kernel", ["splash", "cudnn"])
def test_another_devices_kernel_is_refused(kernel):
    with pytest.raises(ValueError, match=f'"{kernel}" runs on .* platform cpu: take "auto"'):
        kernels.choose(make(**LONG, model__attention_kernel=kernel), "cpu")


def test_a_saved_model_names_no_devices_kernel(tmp_path):
    spec = tiny_models.source(tiny_models.tokenizer(tmp_path)).spec
    for kernel, saved in (("splash", "auto"), ("cudnn", "auto"), ("blocks", "blocks")):
        text = spec_lib.to_json(dataclasses.replace(spec, attention_kernel=kernel))
        assert spec_lib.from_json(text)[0].attention_kernel == saved


@pytest.mark.parametrize("diagonal", [False, True])
def test_cudnns_call_has_the_scale_and_the_mask_of_all_pairs(diagonal):
    """By the same call's XLA form, which runs anywhere."""
    segments = np.array([[1, 1, 1, 2, 3, 3, 0, 0], [1] * 8], np.int32)
    visible = dense(Mask(jnp.asarray(segments), diagonal=diagonal))
    draw = np.random.default_rng(0)
    query, key, value = (jnp.asarray(draw.normal(size=(2, 8, 2, 4)), jnp.float32) for _ in range(3))
    want = jnp.einsum("BHST,BTHK->BSHK", attention_weights(query, key, visible), value)
    found = by_cudnn(query, key, value, visible, implementation="xla")
    np.testing.assert_allclose(found, want, atol=1e-5)
    assert np.asarray(found[0, 3]).any() != diagonal and not np.asarray(found[0, 6:]).any()
