"""The state and its updates: pure functions, compiled once for each row length.

Losses and metrics are sums with their counts until they are read: a sum over the global batch
divided by a count over the global batch is the same number on one device, on many, in several
processes, or added up from microbatches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from bert_jax import layerwise, sharding
from bert_jax import optimizer as optimizer_lib
from bert_jax.models import vocabulary
from bert_jax.models.model import Model

Batch = Mapping[str, jax.Array]
Sums = dict[str, tuple[jax.Array, jax.Array]]  # name -> (sum, count)


@flax.struct.dataclass
class State:
    """All that a run is, besides its data: enough to go on bit for bit.

    Attributes:
      step: () int32, updates done.
      params: float32 parameters.
      opt_state: the optimizer's.
      key: raw bits of the key that every step's dropout key is folded from; its kind is config.
      start: the encoder's trained weights as the run was given them (`layerwise.Layers.given`), where it is
        held to them; else None.
    """

    step: jax.Array
    params: Any
    opt_state: Any
    key: jax.Array
    start: Any = None


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a step is made of. Compiled functions close over it.

    Attributes:
      model: the model.
      objectives: what its outputs are judged by, with weights.
      optimizer: the gradient transformation, of what is trained.
      learning_rate: its schedule, for the log.
      mesh: where arrays live.
      prng: kind of random keys.
      accumulation: microbatches an update.
      l2: lambda of the penalty lambda * sum(w^2) / 2 over decayed weights.
      teacher: the model whose outputs objectives compare with, as `teacher_<output>`; or None.
      teacher_params: its parameters, on the devices; they are no part of the state.
      outputs: names of the model's outputs that evaluation gives beside the sums.
      layers: which of the model's are trained; by default all.
      l2_start: lambda of the penalty lambda * sum((w - w0)^2) / 2 over the weights that were given.
      mixout: probability that such a weight is the given one in a step.
      clip: the norm to which the optimizer scales a larger gradient, for the log; 0 where it scales none.
      vocabulary_parts: above 1 no (B, M, V) logits are made, but one part of the vocabulary's at a time.
    """

    model: Model
    objectives: tuple[Any, ...]
    optimizer: optax.GradientTransformation
    learning_rate: Callable[[jax.Array], jax.Array]
    mesh: Mesh
    prng: str
    accumulation: int = 1
    l2: float = 0.0
    teacher: Model | None = None
    teacher_params: Any = None
    outputs: tuple[str, ...] = ()
    layers: layerwise.Layers = dataclasses.field(default_factory=layerwise.Layers)
    l2_start: float = 0.0
    mixout: float = 0.0
    clip: float = 0.0
    vocabulary_parts: int = 1

    @property
    def predictions(self) -> int:
        """M, places of a row at which the objectives make logits over the vocabulary; 0 where none does."""
        return sum(getattr(objective, "capacity", 0) for objective in self.objectives)

    @property
    def keeps_start(self) -> bool:
        """Whether the state holds the weights that the run was given."""
        return bool(self.l2_start or self.mixout)


@dataclasses.dataclass(frozen=True)
class Together:
    """N runs that are updated in one program: their states are stacked, and those of K seeds' batches too.

    Attributes:
      reads: of each run, which of the K batches it reads.
      rates: of each run, what multiplies the setup's learning rate.
    """

    reads: tuple[int, ...]
    rates: tuple[float, ...]


def abstract_state(setup: Setup, batch: Mapping[str, Any], seed: int) -> State:
    """Returns the state as shapes with shardings, computing nothing.

    Args:
      setup: the run's.
      batch: arrays or shapes of one batch; their names and shapes decide which heads are used.
      seed: the run's.
    """
    boxed = jax.eval_shape(lambda: _init(setup, batch, seed))
    on_mesh = sharding.param_shardings(boxed.params, setup.mesh)
    shapes = nn.unbox(boxed)
    everywhere = sharding.replicated(setup.mesh)
    trained, _ = setup.layers.split(on_mesh)
    placed = State(
        step=everywhere,
        params=on_mesh,
        opt_state=optax.tree_map_params(
            setup.optimizer,
            lambda _, spec: spec,
            shapes.opt_state,
            trained,
            transform_non_params=lambda _: everywhere,
        ),
        key=everywhere,
        start=setup.layers.given(trained) if setup.keeps_start else None,
    )
    return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, placed)


def create_state(setup: Setup, batch: Mapping[str, Any], seed: int) -> State:
    """Returns the state of step 0, each device making only its own share of it."""
    shardings = jax.tree.map(lambda x: x.sharding, abstract_state(setup, batch, seed))
    with jax.set_mesh(setup.mesh):
        return jax.jit(lambda: nn.unbox(_init(setup, batch, seed)), out_shardings=shardings)()


def _init(setup: Setup, batch: Mapping[str, Any], seed: int) -> State:
    row = _flat({name: jnp.zeros((1, *x.shape[1:]), x.dtype) for name, x in batch.items()})
    params_key, dropout_key = jax.random.split(jax.random.key(seed, impl=setup.prng))
    streams = {"params": params_key, "sample": dropout_key}  # what is drawn changes no parameter
    params = setup.model.init(streams, row, mutable=["params"])["params"]
    trained, _ = setup.layers.split(nn.unbox(params))
    return State(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=setup.optimizer.init(trained),
        key=jax.random.key_data(dropout_key),
        start=setup.layers.given(trained) if setup.keeps_start else None,
    )


def make_train_step(
    setup: Setup, together: Together | None = None
) -> Callable[[State, Batch], tuple[State, Sums]]:
    """Returns the compiled update. The state that goes in is consumed.

    Its sums are `loss` (the weighted total), `<objective>_loss`, `<objective>_accuracy`,
    `grad_norm` before clipping, with clipping `clipped` (whether) and `clip_scale` (what the gradient was
    multiplied by, 1 where it was left alone), `learning_rate`, and of the batch `tokens` (real ones) and
    `row_length` (S).

    Args:
      setup: what the step is made of.
      together: the update is one of N runs: every array of the state has an axis (N, ...) before its own,
        every one of the batch (K, ...), and every sum and count is (N,).
    """

    def step(
        state: State, batch: Batch, teacher_params: Any, rate: jax.Array | None = None
    ) -> tuple[State, Sums]:
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key, impl=setup.prng), state.step)
        # A batch without a target (all padding, say) has loss 0, not NaN.
        counts = {o.name: jnp.maximum(o.count(batch), 1.0) for o in setup.objectives}
        trained, kept = setup.layers.split(state.params)
        grads, sums = _gradients(setup, trained, (kept, state.start, teacher_params), batch, counts, key)
        updates, opt_state = setup.optimizer.update(grads, state.opt_state, trained)
        learning_rate = jnp.asarray(setup.learning_rate(state.step), jnp.float32)
        if rate is not None:  # the optimizer's last step is to multiply by the learning rate
            updates, learning_rate = jax.tree.map(lambda x: x * rate, (updates, learning_rate))
        params = setup.layers.join(optax.apply_updates(trained, updates), kept)
        new = state.replace(step=state.step + 1, params=params, opt_state=opt_state)
        one = jnp.ones(())
        total = sum(o.weight * sums[f"{o.name}_loss"] / counts[o.name] for o in setup.objectives)
        metrics = {name: (value, counts[name.split("_")[0]]) for name, value in sums.items()}
        metrics["loss"] = (total + _penalty(setup, trained, state.start), one)
        norm = optax.tree.norm(grads)
        metrics["grad_norm"] = (norm, one)
        if setup.clip:
            metrics["clipped"] = ((norm > setup.clip).astype(jnp.float32), one)
            metrics["clip_scale"] = (optimizer_lib.clip_scale(setup.clip, norm), one)
        metrics["tokens"] = (jnp.sum(batch["segment_ids"] > 0).astype(jnp.float32), one)
        metrics["row_length"] = (one * batch["tokens"].shape[-1], one)
        metrics["learning_rate"] = (learning_rate, one)
        return new, metrics

    return _compiled(setup, step if together is None else _of_all(step, together), donate=True)


def stack(states: list[State]) -> State:
    """Returns the states of N runs as one, (N, ...) each array. The list is emptied, so that they can go."""
    structure = jax.tree.structure(states[0])
    leaves = [jax.tree.leaves(state) for state in states]
    states.clear()
    stacked = [jnp.stack([own.pop(0) for own in leaves]) for _ in range(structure.num_leaves)]
    return jax.tree.unflatten(structure, stacked)


def _of_all(function: Callable[..., Any], together: Together) -> Callable[..., Any]:
    """Returns the update of N states from that of one."""
    reads = np.array(together.reads)
    with np.errstate(over="ignore"):  # a rate beyond float32 is infinite, and its member fails alone
        rates = np.array(together.rates, np.float32)

    def update(states: State, batches: Batch, teacher_params: Any) -> Any:
        shared = not reads.any()  # all of one seed: what depends on the batch alone is computed once
        own = jax.tree.map(lambda x: x[0] if shared else x[reads], dict(batches))
        axes = (0, None if shared else 0, None, 0)
        return jax.vmap(function, in_axes=axes)(states, own, teacher_params, jnp.asarray(rates))

    return update


def make_eval_step(
    setup: Setup,
) -> Callable[[Any, Batch], tuple[Sums, dict[str, jax.Array], dict[str, jax.Array]]]:
    """Returns the compiled evaluation of parameters on a batch.

    It gives the objectives' sums and their baselines', without dropout, the model's outputs that the setup
    names, and of objectives that predict tokens `<objective>_guesses` (B, M) int32 and their probabilities,
    `<objective>_shares`. Counts are the true ones: 0 for a batch of padding.
    """

    def step(
        params: Any, batch: Batch, teacher_params: Any
    ) -> tuple[Sums, dict[str, jax.Array], dict[str, jax.Array]]:
        # Always the same draws, so that two evaluations of the same parameters are equal.
        streams = {"sample": jax.random.key(0, impl=setup.prng)}
        outputs = _apply(setup, params, batch, False, streams)
        outputs |= _taught(setup, teacher_params, batch)
        metrics: Sums = {}
        for objective in setup.objectives:
            count = objective.count(batch)
            for name, value in objective.sums(batch, outputs).items():
                metrics[f"{objective.name}_{name}"] = (value, count)
            for name, value in objective.baselines(batch).items():
                metrics[name] = (value, count)
        return metrics, {name: outputs[name] for name in setup.outputs}, _guesses(setup, batch, outputs)

    return _compiled(setup, step, donate=False)


def _guesses(setup: Setup, batch: Batch, outputs: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
    found = {}
    for name in (objective.name for objective in setup.objectives):
        if f"{name}_positions" in batch and f"{name}_logits" in outputs:
            guesses, shares = vocabulary.best(outputs[f"{name}_logits"])
            found |= {f"{name}_guesses": guesses, f"{name}_shares": shares}
    return found


def make_generate_step(setup: Setup, generate: Callable[..., Any]) -> Callable[[Any, Batch], Any]:
    """Returns `generate(model, params, batch)` of a task, compiled, of parameters and a batch."""

    def step(params: Any, batch: Batch, teacher_params: Any) -> Any:
        return generate(setup.model, params, batch)

    return _compiled(setup, step, donate=False)


def add(total: Sums | None, sums: Sums) -> Sums:
    """Returns the sums of two batches, host numbers in float64."""
    host = jax.tree.map(lambda x: np.float64(x), jax.device_get(sums))
    return host if total is None else jax.tree.map(np.add, total, host)


def means(sums: Sums) -> dict[str, float]:
    """Returns sum / count of each; NaN where nothing was counted."""
    return {name: float(s / c) if c else float("nan") for name, (s, c) in sums.items()}


def _compiled(setup: Setup, function: Callable[..., Any], donate: bool) -> Callable[..., Any]:
    """Returns `function`, jitted, traced and run with the mesh and its rules in force.

    With `donate` its first argument is a state that is consumed, its first result the successor.
    """
    compiled: Any = None

    def traced(*args: Any) -> Any:
        with sharding.rules():
            return function(*args)

    def jitted(first: Any) -> Any:
        nonlocal compiled
        if compiled is None and donate:
            # The successor must lie as the state does. Left to itself the compiler may share an
            # array out in another way, and the next step would be compiled anew for it.
            places = jax.tree.map(lambda x: x.sharding, first)
            compiled = jax.jit(traced, donate_argnums=(0,), out_shardings=(places, None))
        elif compiled is None:
            compiled = jax.jit(traced)
        return compiled

    def run(*args: Any) -> Any:
        with jax.set_mesh(setup.mesh):
            return jitted(args[0])(*args, setup.teacher_params)

    def lower(*args: Any) -> Any:
        with jax.set_mesh(setup.mesh):
            return jitted(args[0]).lower(*args, setup.teacher_params)

    run.lower = lower  # type: ignore[attr-defined]
    return run


def _flat(batch: Batch) -> dict[str, jax.Array]:
    """Returns the batch with (B * C, S) tokens and all that goes with them, where it has (B, C, S)."""
    tokens = batch["tokens"]
    if tokens.ndim == 2:
        return dict(batch)
    return {name: x.reshape(-1, *x.shape[2:]) if x.shape == tokens.shape else x for name, x in batch.items()}


def _apply(setup: Setup, params: Any, batch: Batch, train: bool, streams: Any) -> dict[str, Any]:
    """Returns the model's outputs; of C choices an example, (B, C, S), each is a row with one logit.

    Then `logits` is (B, C).
    """
    row = _flat(batch)
    outputs = setup.model.apply({"params": params}, row, train, setup.vocabulary_parts, rngs=streams)
    if batch["tokens"].ndim == 3 and "logits" in outputs:
        outputs["logits"] = outputs["logits"].reshape(batch["tokens"].shape[:2])
    return outputs


def _taught(setup: Setup, params: Any, batch: Batch) -> dict[str, jax.Array]:
    """Returns the teacher's outputs under their names here; none without a teacher."""
    if setup.teacher is None:
        return {}
    outputs = jax.lax.stop_gradient(setup.teacher.apply({"params": params}, batch))
    return {f"teacher_{name}": value for name, value in outputs.items()}


def _gradients(
    setup: Setup,
    trained: Any,
    constant: tuple[Any, Any, Any],
    batch: Batch,
    counts: Mapping[str, jax.Array],
    key: jax.Array,
) -> tuple[Any, dict[str, jax.Array]]:
    """Returns the gradient of sum / count over the whole batch, and the objectives' sums.

    Args:
      setup: the run's.
      trained: the parameters that it is the gradient of.
      constant: the other parameters, what the trained ones were given as, and the teacher's parameters.
      batch, counts, key: of the step.
    """
    kept, start, teacher_params = constant

    def loss(trained: Any, part: Batch, key: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        # Modules fold their own names into a key, so the streams differ where they are drawn from.
        streams = {"dropout": key, "sample": key}
        params = setup.layers.join(_mixed(setup, trained, start, key), kept)
        outputs = _apply(setup, params, part, True, streams)
        outputs |= _taught(setup, teacher_params, part)
        total, sums = _penalty(setup, trained, start) / setup.accumulation, {}
        for objective in setup.objectives:
            for name, value in objective.sums(part, outputs).items():
                sums[f"{objective.name}_{name}"] = value
            total += objective.weight * sums[f"{objective.name}_loss"] / counts[objective.name]
        return total, sums

    gradient = jax.grad(loss, has_aux=True)
    if setup.accumulation == 1:
        return gradient(trained, batch, key)

    parts = setup.accumulation

    def split(x: jax.Array) -> jax.Array:
        # Every parts-th row, so that each device's rows stay on it.
        x = x.reshape(x.shape[0] // parts, parts, *x.shape[1:]).swapaxes(0, 1)
        axes = (None, "batch", *(None,) * (x.ndim - 2))
        return nn.with_logical_constraint(x, axes)

    def body(carry: Any, xs: tuple[Batch, jax.Array]) -> tuple[Any, None]:
        part, number = xs
        added = gradient(trained, part, jax.random.fold_in(key, number))
        return jax.tree.map(jnp.add, carry, added), None

    microbatches = jax.tree.map(split, dict(batch))
    first = jax.tree.map(lambda x: x[0], microbatches)
    shapes = jax.eval_shape(gradient, trained, first, key)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    total, _ = jax.lax.scan(body, zeros, (microbatches, jnp.arange(parts)))
    return total


def _mixed(setup: Setup, trained: Any, start: Any, key: jax.Array) -> Any:
    """Returns the trained parameters as a step uses them: some elements are the given ones (mixout)."""
    if not setup.mixout:
        return trained
    given = layerwise.mixout(setup.layers.given(trained), start, setup.mixout, key)
    return setup.layers.with_given(trained, given)


def _penalty(setup: Setup, trained: Any, start: Any) -> jax.Array | float:
    """Returns lambda * sum(w^2) / 2 over the decayed weights, and that of the distance to the given ones."""
    total = 0.0
    if setup.l2:
        squares = jax.tree.map(
            lambda p, decayed: jnp.sum(p**2) if decayed else 0.0, trained, optimizer_lib.decays(trained)
        )
        total = setup.l2 / 2 * sum(jax.tree.leaves(squares))
    if setup.l2_start:
        total += setup.l2_start / 2 * layerwise.distance(setup.layers.given(trained), start)
    return total
