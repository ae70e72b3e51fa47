"""The configuration: every slip is refused by the key's name, and a run's config comes back the same."""

import dataclasses
import importlib
import json
import math
import pathlib

import pytest
from ml_collections import ConfigDict

from bert_jax import config as config_lib
from bert_jax import config_rules
from bert_jax.config import ConfigError, default, differing_keys, flatten, from_json, to_json, validate
from bert_jax.models.spec import ModelSpec


def make(**values) -> ConfigDict:
    """A valid pretraining config with keys set, written a__b for a.b."""
    c = default()
    c.train.steps = 10
    for name, value in values.items():
        *groups, leaf = name.split("__")
        target = c
        for group in groups:
            target = target[group]
        # As a config file may: a plain assignment would turn a wrong type away earlier.
        with target.ignore_type():
            target[leaf] = value
    return c


TTA = {"model__kind": "tta", "objective__tta__weight": 1.0, "objective__mlm__weight": 0.0}
CAUSAL = {"model__mask": "causal", "objective__causal__weight": 1.0, "objective__mlm__weight": 0.0}
PREFIX = {"model__mask": "prefix", "objective__prefix__weight": 1.0, "objective__mlm__weight": 0.0}
TEACHER = {"objective__distill__teacher": "DIR", "objective__distill__weight": 5.0}
MIXTURE = {"data__source": "text", "data__mixture": (("a", 0.5), ("b", 2))}
PHASES = {"train__phases": ((128, 8), (512, 2, 16))}
TASK = {"task__name": "cola", "data__path": "data/cola"}


@pytest.mark.parametrize(
    "values",
    [
        {},
        TTA,
        TASK,
        {**TASK, "data__buckets": (32, 64)},
        {"train__steps": 0, "train__epochs": 2},
        {"data__lowercase": True, "data__strip_accents": None},
        {"optimizer__learning_rate": 1},
        {"objective__nsp__weight": 1.0},
        {"data__packing": True, "data__unit": "sentence"},
        {"mesh__data": 4, "mesh__fsdp": 2, "mesh__tensor": 2},
        CAUSAL,
        {**PREFIX, "data__packing": True},
        {**TEACHER, "objective__distill__cosine": 1.0},
        {"objective__rtd__weight": 50.0, "data__packing": True},
        {"objective__rtd__weight": 50.0, "objective__sop__weight": 1.0},
        MIXTURE,
        PHASES,
        {**PHASES, "train__steps": 3},
        {"init_from": "DIR", "data__extend_vocab": 100},
    ],
)
def test_accepts(values):
    validate(make(**values))


def test_unknown_key_is_named_with_the_nearest():
    c = make()
    c.train.step = 3
    with pytest.raises(ConfigError, match=r"^unknown config key train\.step; did you mean train\.steps\?$"):
        validate(c)
    c = make()
    c.zzzzzzzz = 1
    with pytest.raises(ConfigError, match=r"^unknown config key zzzzzzzz$"):
        validate(c)


def test_missing_key_is_named():
    c = make()
    del c.optimizer.clip
    with pytest.raises(
        ConfigError, match=r"config lacks optimizer\.clip: start it from bert_jax\.config\.default"
    ):
        validate(c)


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("train__steps", 1.5, "a whole number"),
        ("train__steps", True, "a whole number"),
        ("train__steps", "10", "a whole number"),
        ("train__steps", 2**31, "below 2**31, as devices count in 32 bits"),
        ("task__reinit_layers", 10**400, "below 2**31, as devices count in 32 bits"),
        ("optimizer__learning_rate", math.inf, "a finite number, at least 0"),
        ("optimizer__learning_rate", "1e-4", "a number"),
        ("data__packing", 1, "true or false"),
        ("data__lowercase", "yes", "true, false or None"),
        ("data__buckets", (32, "64"), "a tuple of whole numbers"),
        ("data__buckets", 32, "a tuple of whole numbers"),
        ("data__path", 3, "a text"),
    ],
)
def test_wrong_type_is_named(key, value, kind):
    with pytest.raises(ConfigError) as error:
        validate(make(**{key: value}))
    assert str(error.value) == f"{key.replace('__', '.')} = {value!r}: it must be {kind}"


@pytest.mark.parametrize("key", sorted(config_rules.CHOICES))
def test_choices_are_told(key):
    with pytest.raises(ConfigError) as error:
        validate(make(**{key.replace(".", "__"): "neither"}))
    assert str(error.value).startswith(f"{key} = 'neither': it must be one of ")
    assert all(repr(choice) in str(error.value) for choice in config_rules.CHOICES[key])


@pytest.mark.parametrize("key", sorted(config_rules.RANGES))
def test_bounds_are_told(key):
    low, high = config_rules.RANGES[key]
    like = flatten(default())[key]
    outside = [like.__class__(bound + step) for bound, step in ((low, -1), (high, 1)) if bound is not None]
    if isinstance(like, float):
        outside.append(float("nan"))
    for value in outside:
        with pytest.raises(ConfigError) as error:
            validate(make(**{key.replace(".", "__"): value}))
        assert str(error.value).startswith(f"{key} = {value}: it must be ")
        assert str(low) in str(error.value)


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        ({"model__heads": 7}, ["model.hidden_size = 768", "model.heads = 7"]),
        (
            {"model__position": "rotary", "model__hidden_size": 36},
            ['model.position = "rotary"', "model.hidden_size / model.heads = 3"],
        ),
        (
            {"model__position": "sinusoidal", "model__hidden_size": 9, "model__heads": 3},
            ['model.position = "sinusoidal"', "it is 9"],
        ),
        ({"data__seq_len": 513}, ["data.seq_len = 513", "model.max_positions = 512"]),
        (
            {"objective__mlm__mask_share": 0.8, "objective__mlm__random_share": 0.3},
            ["objective.mlm.mask_share", "random_share", "1.1"],
        ),
        (
            {"objective__mlm__max_predictions": 129},
            ["objective.mlm.max_predictions = 129", "data.seq_len = 128"],
        ),
        (
            {"optimizer__warmup_steps": 5, "optimizer__warmup_fraction": 0.1},
            ["optimizer.warmup_steps", "optimizer.warmup_fraction"],
        ),
        ({"train__accumulation": 3}, ["train.batch_size = 32", "train.accumulation = 3"]),
        ({"train__steps": 0}, ["train.steps", "train.epochs"]),
        ({"train__vocabulary_parts": 6}, ["train.vocabulary_parts = 6", "power of 2"]),
        (
            {"train__vocabulary_parts": 8, "objective__rtd__weight": 50.0},
            ["train.vocabulary_parts = 8", "objective.rtd"],
        ),
        ({"train__vocabulary_parts": 8, **TEACHER}, ["train.vocabulary_parts = 8", "objective.distill"]),
        (
            {"train__vocabulary_parts": 8, "objective__mlm__weight": 0.0, "objective__nsp__weight": 1.0},
            ["train.vocabulary_parts = 8", "no objective that predicts tokens"],
        ),
        ({**TASK, "train__vocabulary_parts": 8}, ["train.vocabulary_parts = 8", '"cola" makes none']),
        ({**TASK, "data__buckets": (32, 256)}, ["data.buckets = (32, 256)", "data.seq_len = 128"]),
        ({**TASK, "data__buckets": (2,)}, ["data.buckets = (2,)"]),
        ({"data__buckets": (32,)}, ["data.buckets"]),
        ({"data__source": "text"}, ['data.source = "text"', "data.path"]),
        ({"data__source": "shards"}, ['data.source = "shards"', "data.path"]),
        ({"mesh__data": 0}, ["mesh.data = 0"]),
        ({"objective__mlm__weight": 0.0}, ["every objective has weight 0", "objective.mlm.weight"]),
        ({"objective__tta__weight": 1.0}, ["objective.tta.weight", 'model.kind = "encoder"']),
        ({"model__kind": "tta"}, ['model.kind = "tta"', "objective.tta"]),
        ({**TTA, "objective__mlm__weight": 1.0}, ['model.kind = "tta"', "objective.mlm"]),
        ({**TTA, "objective__nsp__weight": 1.0}, ['model.kind = "tta"', "nsp"]),
        ({"objective__nsp__weight": 1.0, "data__packing": True}, ["data.packing", "objective.nsp"]),
        ({"objective__nsp__weight": 1.0, "data__unit": "sentence"}, ["objective.nsp", "data.unit"]),
        ({"objective__nsp__weight": 1.0, "model__segments": 1}, ["objective.nsp", "model.segments"]),
        ({"task__name": "cola"}, ['task.name = "cola"', "data.path"]),
        ({**TASK, "data__packing": True}, ["data.packing"]),
        ({**TASK, "task__see_self": True}, ["task.see_self = True", 'model.kind = "encoder"']),
        ({**TTA, "model__mask": "causal"}, ['model.kind = "tta"', 'model.mask = "causal"']),
        ({"objective__causal__weight": 1.0}, ["objective.causal.weight", 'model.mask = "full"']),
        ({"objective__prefix__weight": 1.0}, ["objective.prefix.weight", 'model.mask = "full"']),
        ({"model__mask": "causal"}, ['model.mask = "causal"', "objective.causal"]),
        ({**CAUSAL, "objective__mlm__weight": 1.0}, ['model.mask = "causal"', "objective.mlm"]),
        ({**PREFIX, "objective__sop__weight": 1.0}, ['model.mask = "prefix"', "sop"]),
        (
            {"objective__nsp__weight": 1.0, "objective__sop__weight": 1.0},
            ["objective.nsp", "objective.sop"],
        ),
        ({"objective__sop__weight": 1.0, "data__packing": True}, ["data.packing", "objective.sop"]),
        ({"objective__rtd__weight": 50.0, "objective__mlm__weight": 0.0, "objective__nsp__weight": 1.0},
         ["objective.rtd", "objective.mlm"]),
        ({**TEACHER, "objective__rtd__weight": 50.0}, ["objective.rtd", "objective.distill"]),
        ({"objective__distill__weight": 1.0}, ["objective.distill.teacher"]),
        ({"objective__distill__teacher": "DIR"}, ["objective.distill.teacher", "objective.distill.weight"]),
        ({"model__attention": "random", "data__packing": True}, ["model.attention", "data.packing"]),
        ({"model__attention": "random", "model__position": "rotary"}, ["model.attention", "rotary"]),
        ({"model__first_norm": False}, ["model.first_norm", 'model.norm = "pre"']),
        ({"model__local_window": 5}, ["model.local_window = 5", "even"]),
        ({"model__position_offset": 2, "model__position": "rotary"}, ["model.position_offset = 2"]),
        ({**MIXTURE, "data__path": "c"}, ["data.path", "data.mixture"]),
        ({"data__mixture": (("a", 1),)}, ["data.mixture", "data.source"]),
        ({"train__phases": ((64, 8),)}, ["train.phases", "64", "data.seq_len = 128"]),
        ({"train__phases": ((128, 8), (1024, 8))}, ["train.phases", "model.max_positions = 512"]),
        ({**PHASES, "train__steps": 11}, ["train.steps = 11", "10 steps of train.phases"]),
        ({**PHASES, "train__accumulation": 32}, ["train.phases", "train.accumulation = 32"]),
        ({**PHASES, "objective__mlm__max_predictions": 20}, ["objective.mlm.max_predictions = 20"]),
        ({**PHASES, "train__steps": 0, "train__epochs": 1.0}, ["train.epochs = 1", "train.phases"]),
        ({"data__extend_vocab": 9}, ["data.extend_vocab", "init_from"]),
        ({**TASK, **PHASES, "train__phases": ((128, 10),)}, ["train.phases"]),
        ({**TASK, "data__general_path": "G"}, ["data.general_path"]),
    ],
)  # fmt: skip
def test_impossible_pairs_are_named(values, keys):
    with pytest.raises(ConfigError) as error:
        validate(make(**values))
    message = str(error.value)
    assert "\n" not in message
    assert [key for key in keys if key not in message] == []


@pytest.mark.parametrize(
    ("key", "value", "kind"),
    [
        ("train__phases", ((128,),), "(seq_len, steps) or (seq_len, steps, batch_size), all above 0"),
        ("train__phases", (128, 8), "(seq_len, steps) or (seq_len, steps, batch_size), all above 0"),
        ("train__phases", ((128, 0),), "all above 0"),
        ("data__mixture", ("a", "b"), "(path, weight) pairs, each weight above 0"),
        ("data__mixture", (("a", 0),), "each weight above 0"),
        ("data__buckets", (True,), "whole numbers"),
    ],
)
def test_tuples_hold_what_they_must(key, value, kind):
    with pytest.raises(ConfigError) as error:
        validate(make(**{key: value}))
    assert str(error.value).startswith(f"{key.replace('__', '.')} = {value!r}: it must be a tuple of ")
    assert kind in str(error.value)


RECIPES = sorted(path.stem for path in (pathlib.Path(__file__).parents[1] / "configs").glob("*.py"))


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_valid_and_tells_how_to_run_it(name):
    recipe = importlib.import_module(f"configs.{name}")
    assert f"--config=configs/{name}.py" in recipe.__doc__
    assert "Seen:" in recipe.__doc__
    for variant in getattr(recipe, "VARIANTS", (None,)):
        c = recipe.get_config(*([] if variant is None else [variant]))
        if c.objective.distill.weight:
            c.objective.distill.teacher = "DIR"
        validate(c)
        if c.data.max_packed < c.data.seq_len // 16:
            assert not c.data.packing, "rows as long as these have room for more"


def test_json_gives_the_same_config_back():
    c = make(**TASK, data__buckets=(32, 64), data__lowercase=False, optimizer__learning_rate=3e-5)
    pretraining = make(**PHASES, **MIXTURE)
    assert flatten(from_json(to_json(pretraining))) == flatten(pretraining)
    text = to_json(c)
    assert json.loads(text)["format"] == config_lib.FORMAT
    again = from_json(text)
    assert flatten(again) == flatten(c)
    assert again.data.buckets == (32, 64)
    assert again.data.lowercase is False
    assert again.data.strip_accents is None
    validate(again)
    assert to_json(again) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "config.json is not JSON"),
        ("[]", "config.json was not written in format 1"),
        ("{}", "config.json was not written in format 1"),
        ('{"format": 2}', "config.json was not written in format 1"),
        ('{"format": 1, "train": {"stepz": 3}}', r"unknown key train\.stepz"),
        ('{"format": 1, "trian": {"steps": 3}}', r"unknown key trian\.steps"),
    ],
)
def test_other_files_are_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        from_json(text)


def test_differing_keys():
    found = make()
    assert differing_keys(make(), found) == []
    asked = make(optimizer__learning_rate=2e-4, data__seq_len=64)
    assert differing_keys(asked, found) == [
        "data.seq_len: 128 -> 64",
        "optimizer.learning_rate: 0.0001 -> 0.0002",
    ]


def test_free_keys_may_differ():
    schema = flatten(default())
    assert set(config_lib.FREE_KEYS) <= set(schema)
    values = {key.replace(".", "__"): 7 for key in config_lib.FREE_KEYS}
    assert differing_keys(make(**values), make()) == []


def test_tables_name_keys_of_the_schema():
    schema = flatten(default())
    assert set(config_rules.CHOICES) <= set(schema)
    assert set(config_rules.RANGES) <= set(schema)
    numbers = {k for k, v in schema.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    assert numbers - set(config_rules.RANGES) == set()


def test_a_spec_has_the_defaults_of_the_config():
    model = default().model
    fields = {field.name: field.default for field in dataclasses.fields(ModelSpec)}
    for key in set(model) - {"vocab_size", "dtype"}:
        assert fields[key] == model[key], key
