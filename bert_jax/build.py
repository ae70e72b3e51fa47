"""From a config to what the loop needs: data, model, objectives, step."""

from __future__ import annotations

import dataclasses
import math
import platform
from collections.abc import Sequence
from typing import Any

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from etils import epath
from jax.sharding import Mesh
from ml_collections import ConfigDict

from bert_jax import adopt as adopt_lib
from bert_jax import config as config_lib
from bert_jax import cores, kernels, layerwise, objectives, optimizer, sharding, tasks
from bert_jax import step as step_lib
from bert_jax import text as text_lib
from bert_jax import workdir as workdir_lib
from bert_jax.config import ConfigError
from bert_jax.data import extend
from bert_jax.data import tokenizer as tokenizers
from bert_jax.interop import load
from bert_jax.models import spec as spec_lib
from bert_jax.models.model import Model


@dataclasses.dataclass(frozen=True)
class Phase:
    """A part of a run with one row length and batch size.

    Attributes:
      start, stop: it is the steps start + 1 .. stop.
      setup: what its steps are made of.
      train, eval: its examples; their step 0 is the phase's first.
      general: examples of another text, whose loss is told beside; or None.
    """

    start: int
    stop: int
    setup: step_lib.Setup
    train: Any
    eval: Any
    general: Any | None


@dataclasses.dataclass
class Run:
    """A run, ready to start.

    Attributes:
      config: the config, completed by what `init_from` decides.
      phases: one or more, in order.
      tokenizer: the run's.
      task: the fine-tuning task; None in pretraining.
      source: the weights that the run starts from; None where it starts from random ones.
      teacher: the model that it is distilled from, or None.
      text: `Text.digest` of a pretraining run's text; "" of a task.
    """

    config: ConfigDict
    phases: tuple[Phase, ...]
    tokenizer: Any
    task: Any
    source: load.Source | None
    teacher: load.Source | None
    text: str = ""

    @property
    def setup(self) -> step_lib.Setup:
        """What the first phase's steps are made of; the model and the state are those of all."""
        return self.phases[0].setup

    @property
    def steps(self) -> int:
        return self.phases[-1].stop

    def phase_of(self, step: int) -> Phase:
        """Returns the phase that a step is of, counted from 1; of step 0, the first."""
        return next(phase for phase in self.phases if step <= phase.stop)

    def initial_state(self, sample: dict[str, np.ndarray]) -> step_lib.State:
        """Returns the state of step 0, with the weights of `init_from` or the teacher that fit."""
        state = step_lib.create_state(self.setup, sample, self.config.seed)
        spec = self.setup.model.spec
        if self.source is not None:
            found = self.source.params
            old = self.source.tokenizer
            if not self.task and self.tokenizer.digest() != old.digest():
                pieces = extend.transfer(self.tokenizer, old)
                found = adopt_lib.with_vocabulary(found, pieces, spec.padded_vocab_size)
            params = adopt_lib.adopt(state.params, found, self.config.init_from)
        elif self.teacher is not None and self.config.objective.distill.init:
            found = adopt_lib.of_teacher(self.teacher.params, self.teacher.spec, spec)
            params = adopt_lib.adopt(state.params, found, self.config.objective.distill.teacher)
        else:
            return state
        setup = self.setup
        params = setup.layers.renew(params, state.params)
        state = state.replace(params=params)
        if setup.keeps_start:  # arrays of its own: those of the state are given up at each step
            given = setup.layers.given(setup.layers.split(params)[0])
            state = state.replace(start=jax.tree.map(jnp.copy, given))
        return state


def build_together(
    configs: Sequence[ConfigDict],
    source: load.Source | None,
    teacher: load.Source | None = None,
    saved: epath.Path | None = None,
) -> list[Run]:
    """Returns the runs of configs that differ in seed and learning rate alone.

    They share all but the order of their examples; a task's are read once. Their steps are the first's,
    of whose learning rate the others' are multiples (`step.Together`).

    Args:
      configs: complete.
      source, teacher, saved, and what is raised: as in `build`.
    """
    first = build(configs[0], source, teacher, saved=saved)
    of_seed = {configs[0].seed: first}
    for config in configs[1:]:
        if config.seed in of_seed:
            continue
        if first.task:
            train = first.phases[0].train.seeded(config.seed)
            phases = (dataclasses.replace(first.phases[0], train=train),)
        else:
            other = _pretraining(config, first.setup.mesh, source, None, saved)
            phases = tuple(
                dataclasses.replace(new, setup=old.setup)
                for new, old in zip(other.phases, first.phases, strict=True)
            )
        of_seed[config.seed] = dataclasses.replace(first, phases=phases)
    return [dataclasses.replace(of_seed[config.seed], config=config) for config in configs]


def build(
    config: ConfigDict,
    source: load.Source | None,
    teacher: load.Source | None = None,
    mesh: Mesh | None = None,
    saved: epath.Path | None = None,
) -> Run:
    """Reads or prepares the data and makes the step's parts.

    Args:
      config: complete.
      source: the weights that the run starts from.
      teacher: the model that it is distilled from.
      mesh: where it is to run; None: on all devices that there are, as `config.mesh` lays them out.
      saved: the workdir of the run that goes on, or is evaluated: the vocabulary is the one there, and a
        task's classes must be.

    Raises:
      ValueError: data, tokenizer, model or mesh do not fit each other; the message names the key.
    """
    config_lib.validate(config)
    mesh = sharding.make_mesh(config.mesh) if mesh is None else mesh
    if config.task.name:
        return _fine_tuning(config, mesh, source, saved)
    return _pretraining(config, mesh, source, teacher, saved)


def about(run: Run) -> dict[str, Any]:
    """Returns what the page of a run says of its machine, model and data, in JSON values."""
    first, mesh, spec = run.phases[0], run.setup.mesh, run.setup.model.spec
    return {
        "devices": f"{mesh.devices.size} {mesh.devices.flat[0].device_kind}",
        "processes": jax.process_count(),
        "mesh": ", ".join(f"{name} {size}" for name, size in mesh.shape.items()),
        "system": f"{platform.system()} {platform.machine()}, {len(cores.available())} cores",
        "versions": f"Python {platform.python_version()}, JAX {jax.__version__}, Flax {flax.__version__}",
        "model": f"{spec.kind}, {spec.layers} layers, hidden size {spec.hidden_size}, {spec.heads} heads",
        "vocabulary": run.tokenizer.vocab_size,
        **({"text": run.text} if run.text else {}),
        "training_examples": first.train.num_examples,
        "evaluation_examples": first.eval.num_examples,
        "steps": run.steps,
        "batch_size": first.train.batch_size,
    }


def _fine_tuning(config: ConfigDict, mesh: Mesh, source: load.Source | None, saved: epath.Path | None) -> Run:
    if not config.data.tokenizer:
        raise ConfigError(
            f'task.name = "{config.task.name}" needs a pretrained model, init_from, or a vocabulary, '
            "data.tokenizer"
        )
    vocabulary = config.data.tokenizer if saved is None else saved / workdir_lib.TOKENIZER
    tokenizer = tokenizers.load(vocabulary, config.data.lowercase, config.data.strip_accents)
    if source is not None and tokenizer.tokens != source.tokenizer.tokens:
        raise ConfigError(
            f"data.tokenizer = {config.data.tokenizer!r} is another vocabulary than that of init_from = "
            f"{config.init_from!r}, whose numbers for words its model knows: leave it empty"
        )
    task = tasks.make(config, tokenizer)
    if saved is not None:
        _refuse_other_classes(task.labels, saved / workdir_lib.MODEL)
    if source is not None and task.heads.get("has_mlm") and not source.spec.has_mlm:
        raise ConfigError(
            f"init_from = {config.init_from!r} has no token head, by which task.name = "
            f'"{config.task.name}" answers: name a masked, prefix or left-to-right language model'
        )
    spec = spec_lib.from_config(
        config.model,
        vocab_size=tokenizer.vocab_size,
        mask_id=tokenizer.mask_id,
        classifier_dropout=config.task.dropout,
        **{"has_mlm": False, **task.heads},
    )
    spec = _as_task_reads(spec, config.task)
    steps = config.train.steps or _steps_of(config, task.train.num_examples, config.train.batch_size)
    sharding.check(config, mesh, spec, config.train.batch_size)
    setup = _setup(config, mesh, spec, (task.objective,), steps)
    setup = dataclasses.replace(setup, outputs=task.outputs)
    phase = Phase(0, steps, setup, task.train, task.evals["eval"], None)
    return Run(config, (phase,), tokenizer, task, source, None)


def _refuse_other_classes(labels: Sequence[str], model: epath.Path) -> None:
    """Raises ConfigError where the data of a run that has saved gives other classes than it began with."""
    _, then = spec_lib.from_json(model.read_bytes(), str(model))
    if tuple(labels) != then:
        now, before = ({*these} - {*those} for these, those in ((labels, then), (then, labels)))
        changed = [f"{' and '.join(map(repr, sorted(some)[:3]))} {how}" for some, how in
                   ((now, "came"), (before, "went")) if some]  # fmt: skip
        raise ConfigError(
            f"{model.parent} was trained on other classes than its data has now "
            f"({', '.join(changed) or 'in another order'}): give it back the data that it began with, or "
            "take another --workdir"
        )


def _as_task_reads(spec: spec_lib.ModelSpec, task: ConfigDict) -> spec_lib.ModelSpec:
    """Returns the spec with the pooling, and of T-TA with the mask, that the task asks for."""
    is_tta = spec.kind == "tta"
    if task.see_self is not None and not is_tta:
        raise ConfigError(
            f"task.see_self = {task.see_self} is of T-TA, and the model is an encoder, whose tokens all see "
            "themselves: set it to None"
        )
    reads_words = bool(spec.token_labels or spec.marked or spec.has_span)
    see_self = is_tta and (reads_words if task.see_self is None else task.see_self)
    pooling = "mean" if is_tta and spec.pooling == "first" else spec.pooling
    return dataclasses.replace(spec, see_self=see_self, pooling=task.pooling or pooling)


def _pretraining(
    config: ConfigDict,
    mesh: Mesh,
    source: load.Source | None,
    teacher: load.Source | None,
    saved: epath.Path | None,
) -> Run:
    text = text_lib.open_text(config) if saved is None else text_lib.open_again(config, saved)
    tokenizer, o = text.tokenizer, config.objective
    replaces = bool(o.rtd.weight)
    spec = spec_lib.from_config(
        config.model,
        vocab_size=tokenizer.vocab_size,
        mask_id=tokenizer.mask_id,
        # ELECTRA's token head is its generator's.
        has_mlm=bool(o.mlm.weight or o.tta.weight or o.causal.weight or o.prefix.weight) and not replaces,
        has_nsp=bool(o.nsp.weight or o.sop.weight),
        has_rtd=replaces,
        has_generator=replaces,
    )
    asked = config.train.phases or ((config.data.seq_len, config.train.steps),)
    in_all = sum(phase[1] for phase in asked)
    steps = config.train.steps or in_all
    if config.train.phases and steps < in_all:
        logging.warning("train.phases has %d steps, and is cut to train.steps = %d", in_all, steps)
    planned: list[dict[str, Any]] = []  # of each phase, all but its setup
    for number, (seq_len, count, *rest) in enumerate(asked):
        start = planned[-1]["stop"] if planned else 0
        if planned and start >= steps:
            break
        size = rest[0] if rest else config.train.batch_size
        goals = tuple(objectives.from_config(config, tokenizer, text.unigram, seq_len))
        train = text.examples(config, goals, batch_size=size, seq_len=seq_len, phase=number, train=True)
        stop = min(start + count, steps) or _steps_of(config, train.num_examples, size)
        size = config.train.eval_batch_size or size
        held_out = text.examples(config, goals, batch_size=size, seq_len=seq_len, phase=0, train=False)
        general = text.general_examples(config, goals, batch_size=size, seq_len=seq_len)
        planned.append(
            {
                "start": start,
                "stop": stop,
                "goals": goals,
                "train": train,
                "eval": held_out,
                "general": general,
            }
        )
    for plan in planned:
        sharding.check(config, mesh, spec, plan["train"].batch_size)
    setup = _setup(config, mesh, spec, (), planned[-1]["stop"])
    setup = dataclasses.replace(setup, **_teaching(teacher, tokenizer, mesh))
    phases = tuple(
        Phase(setup=dataclasses.replace(setup, objectives=plan.pop("goals")), **plan) for plan in planned
    )
    first = phases[0]
    filled = first.train.fill_share
    logging.info(
        "text: %s training tokens in %s examples, %s evaluation tokens in %s; vocabulary %s%s",
        *(f"{n:,}" for n in (sum(s.num_tokens for s in text.train), first.train.num_examples,
                             sum(s.num_tokens for s in text.eval), first.eval.num_examples,
                             tokenizer.vocab_size)),
        "" if math.isnan(filled) else f"; {100 * filled:.1f}% of a row is text",
    )  # fmt: skip
    return Run(config, phases, tokenizer, None, source, teacher, text.digest)


def _steps_of(config: ConfigDict, num_examples: int, batch_size: int) -> int:
    return math.ceil(config.train.epochs * num_examples / batch_size)


def _setup(
    config: ConfigDict, mesh: Mesh, spec: spec_lib.ModelSpec, goals: tuple[Any, ...], steps: int
) -> step_lib.Setup:
    learning_rate = optimizer.schedule(config.optimizer, steps)
    kernel, why = kernels.choose(config, mesh.devices.flat[0].platform)
    logging.info(why)
    spec = dataclasses.replace(spec, attention_kernel=kernel)
    task = config.task if config.task.name else None
    return step_lib.Setup(
        model=Model(spec),
        objectives=goals,
        optimizer=optimizer.make(config.optimizer, steps, learning_rate, task.head_rate if task else 1.0),
        learning_rate=learning_rate,
        mesh=mesh,
        prng=config.train.prng,
        accumulation=config.train.accumulation,
        vocabulary_parts=config.train.vocabulary_parts,
        l2=task.l2 if task else 0.0,
        layers=layerwise.of(
            spec,
            config.optimizer.freeze_layers,
            task.reinit_layers if task else 0,
            held=bool(task and (task.l2_start or task.mixout)),
        ),
        l2_start=task.l2_start if task else 0.0,
        mixout=task.mixout if task else 0.0,
        clip=config.optimizer.clip,
    )


def _teaching(teacher: load.Source | None, tokenizer: Any, mesh: Mesh) -> dict[str, Any]:
    """Returns the teacher's part of a setup, its parameters laid out over the mesh."""
    if teacher is None:
        return {}
    if teacher.tokenizer.digest() != tokenizer.digest():
        raise ConfigError(
            "the text's vocabulary is not the teacher's, and guesses over two vocabularies do not compare: "
            "leave data.tokenizer empty, and name raw text"
        )
    model = Model(dataclasses.replace(teacher.spec, has_nsp=False, has_pooler=False, labels=0))
    row = {"tokens": jnp.zeros((1, 4), jnp.int32)}
    boxed = jax.eval_shape(lambda: model.init(jax.random.key(0), row)["params"])
    places = sharding.param_shardings(boxed, mesh)

    def place(shape: Any, host: Any, where: Any) -> jax.Array:
        host = np.asarray(host, shape.dtype)
        return jax.make_array_from_callback(host.shape, where, lambda index: host[index])

    shapes = nn.unbox(boxed)
    params = {name: teacher.params[name] for name in shapes}
    return {"teacher": model, "teacher_params": jax.tree.map(place, shapes, params, places)}
