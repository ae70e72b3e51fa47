"""Starting from given weights: what is taken, what is said, and what is refused."""

import dataclasses
import importlib
import pathlib

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import adopt, sharding
from bert_jax import config as config_lib
from bert_jax.models import spec as spec_lib
from bert_jax.models.model import Model


def test_arrays_that_are_given_replace_the_initial_ones(caplog):
    caplog.set_level("INFO")
    params = {"a": {"kernel": jnp.zeros((2, 3))}, "b": {"bias": jnp.ones(4)}}
    found = {"a": {"kernel": np.full((2, 3), 7, np.float64)}, "other": np.zeros(1)}
    taken = adopt.adopt(params, found, "MODEL")
    np.testing.assert_array_equal(taken["a"]["kernel"], np.full((2, 3), 7))
    assert taken["a"]["kernel"].dtype == jnp.float32
    np.testing.assert_array_equal(taken["b"]["bias"], np.ones(4))
    assert "initialised anew, since MODEL has none: b/bias" in caplog.text
    assert "in MODEL but not in this model: other" in caplog.text


def test_a_shape_that_does_not_fit_is_refused_by_name():
    params = {"a": {"kernel": jnp.zeros((2, 3))}}
    with pytest.raises(ValueError, match=r"MODEL: a/kernel has shape \(3, 2\) and the model's has \(2, 3\)"):
        adopt.adopt(params, {"a": {"kernel": np.zeros((3, 2))}}, "MODEL")


def test_another_tasks_head_is_drawn_anew_and_the_rest_is_taken(caplog):
    params = {"classifier": {"kernel": jnp.zeros((2, 2)), "bias": jnp.zeros(2)}, "a": jnp.zeros(3)}
    found = {"classifier": {"kernel": np.ones((2, 3)), "bias": np.ones(3)}, "a": np.ones(3)}
    taken = adopt.adopt(params, found, "MODEL")
    np.testing.assert_array_equal(taken["classifier"]["kernel"], np.zeros((2, 2)))
    np.testing.assert_array_equal(taken["a"], np.ones(3))
    assert "since MODEL was fine-tuned to another task: classifier/bias, classifier/kernel" in caplog.text


RECIPES = sorted(path.stem for path in (pathlib.Path(__file__).parents[1] / "configs").glob("*.py"))


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipes_parameters_have_a_place_on_the_mesh(name):
    recipe = importlib.import_module(f"configs.{name}")
    for variant in getattr(recipe, "VARIANTS", (None,)):
        c = recipe.get_config(*([] if variant is None else [variant]))
        c.model.scan = True
        spec = spec_lib.from_config(c.model, vocab_size=c.model.vocab_size or 1000, mask_id=4, has_nsp=True)
        row = {"tokens": jnp.zeros((1, 4), jnp.int32)}
        boxed = jax.eval_shape(Model(spec).init, jax.random.key(0), row)["params"]
        places = jax.tree.leaves(sharding.param_shardings(boxed, sharding.make_mesh(c.mesh)))
        assert len(places) == len(jax.tree.leaves(nn.unbox(boxed)))


HEADS = {
    "classes": {"labels": 3},
    "attention": {"labels": 3, "pooling": "attention"},
    "marked": {"labels": 3, "marked": 2},
    **{head: {"token_labels": 3, "token_head": head} for head in ("linear", "crf", "bilstm", "bilstm_crf")},
    "span": {"has_span": True},
    "replaced": {"has_rtd": True},
    "pairs": {"has_nsp": True, "nsp_head": "single"},
    "spelling": {"has_mlm": True, "has_spelling": True},
    "plain": {"has_mlm": True, "mlm_head": "plain"},
    "tta": {"has_mlm": True, "kind": "tta", "tta_query": "mask_token"},
    "synthesizer": {"attention": "random"},
}


@pytest.mark.parametrize("name", HEADS)
def test_every_heads_parameters_have_a_place_on_the_mesh(name):
    c = config_lib.default()
    c.model.update({"hidden_size": 16, "layers": 1, "heads": 2, "feed_forward_size": 32, "scan": True})
    spec = spec_lib.from_config(c.model, vocab_size=20, mask_id=4)
    spec = dataclasses.replace(spec, **{"has_mlm": False, **HEADS[name]})
    boxed = jax.eval_shape(Model(spec).init, jax.random.key(0), {"tokens": jnp.zeros((1, 4), jnp.int32)})
    places = sharding.param_shardings(boxed["params"], sharding.make_mesh(c.mesh))
    assert len(jax.tree.leaves(places)) == len(jax.tree.leaves(nn.unbox(boxed["params"])))


@pytest.mark.parametrize(
    ("made", "said"),
    [(nn.LogicallyPartitioned(jnp.zeros(3), ("nowhere",)), r"\('nowhere',\)"), (jnp.zeros(3), "None")],
)
def test_a_parameter_without_a_rule_is_an_error(made, said):
    boxed = {"layer": {"good": nn.LogicallyPartitioned(jnp.zeros(3), ("norm",)), "kernel": made}}
    with pytest.raises(ValueError, match=rf"parameter layer/kernel is to lie: its axes are {said}"):
        sharding.param_shardings(boxed, sharding.make_mesh(config_lib.default().mesh))
