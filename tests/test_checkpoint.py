"""Checkpoints: exact, kept and pruned as asked, and damage is noticed and passed over."""

import json
import logging
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from etils import epath

from bert_jax import checkpoint_record
from bert_jax.checkpoint import CheckpointError, Checkpoints, read_params


@flax.struct.dataclass
class State:
    step: jax.Array
    params: Any
    opt_state: Any
    key: jax.Array


def make_state(seed: int = 0, width: int = 64) -> State:
    params = {
        "encoder": {"kernel": jax.random.normal(jax.random.key(seed), (width, 8)), "bias": jnp.arange(8.0)},
        "head": {"scale": jnp.full((3,), -0.0, jnp.bfloat16), "on": jnp.array([True, False, True])},
    }
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    opt_state = jax.tree.map(lambda x: x + 1, optimizer.init(params["encoder"]))
    return State(jnp.int32(seed), params, opt_state, jax.random.key_data(jax.random.key(seed)))


def abstract(state: State, sharding: Any = None) -> State:
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding or x.sharding), state
    )


def assert_same(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        # Bytes, not values: -0.0 must stay -0.0.
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()


def steps_in(directory: pathlib.Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def save(directory: pathlib.Path, *steps: int, keep: int = 5) -> None:
    checkpoints = Checkpoints(directory, keep=keep, best_mode=None)
    for step in steps:
        checkpoints.save(step, make_state(step))
    checkpoints.close()


def largest_file(step: pathlib.Path) -> pathlib.Path:
    return max((p for p in step.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


def test_round_trip_is_exact(tmp_path):
    state = make_state(7)
    checkpoints = Checkpoints(tmp_path / "c", keep=2, best_mode=None)
    assert checkpoints.restore(abstract(state)) is None
    assert checkpoints.latest_step() is None
    checkpoints.save(7, state)
    step, restored = checkpoints.restore(abstract(state))
    assert step == 7
    assert_same(state, restored)
    assert_same(state, checkpoints.restore_step(7, abstract(state)))
    checkpoints.close()
    assert steps_in(tmp_path / "c") == ["7"]


def test_keeps_the_newest_and_the_best(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2, best_mode="min")
    metrics = {1: 3.0, 2: 1.0, 3: float("nan"), 4: None, 5: 2.0, 6: 1.5}
    for step, metric in metrics.items():
        checkpoints.save(step, make_state(step), metric)
    checkpoints.close()
    assert steps_in(tmp_path) == ["2", "5", "6"]
    assert (checkpoints.latest_step(), checkpoints.best_step()) == (6, 2)
    # A later process reads the metrics from the files.
    checkpoints = Checkpoints(tmp_path, keep=2, best_mode="min")
    assert checkpoints.best_step() == 2
    checkpoints.save(7, make_state(7), 0.5)
    checkpoints.close()
    assert steps_in(tmp_path) == ["6", "7"]


def test_best_is_the_largest_where_asked(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=1, best_mode="max")
    for step, metric in {1: 0.1, 2: 0.9, 3: 0.9, 4: 0.2}.items():  # the first among equals
        checkpoints.save(step, make_state(step), metric)
    checkpoints.close()
    assert steps_in(tmp_path) == ["2", "4"]


def test_saving_a_step_again_leaves_it(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2, best_mode=None)
    checkpoints.save(1, make_state(1))
    checkpoints.save(1, make_state(2))
    assert_same(make_state(1), checkpoints.restore(abstract(make_state()))[1])
    checkpoints.close()


def test_state_may_be_donated_right_after_save(tmp_path):
    update = jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)
    # Large enough that writing is still going on while the buffers are reused.
    state = {"w": jnp.zeros((1500, 1000)), "v": jnp.zeros((1500, 1000)), "step": jnp.int32(0)}
    checkpoints = Checkpoints(tmp_path, keep=10, best_mode=None)
    for step in range(3):
        checkpoints.save(step, state)
        for _ in range(10):
            state = update(state)
    wanted = abstract(state)
    for step in range(3):
        restored = checkpoints.restore_step(step, wanted)
        assert int(restored["step"]) == 10 * step
        np.testing.assert_array_equal(restored["w"], np.full((1500, 1000), 10.0 * step))
        np.testing.assert_array_equal(restored["v"], np.full((1500, 1000), 10.0 * step))
    checkpoints.close()


def truncate(step: pathlib.Path) -> None:
    path = largest_file(step / "state")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def delete(step: pathlib.Path) -> None:
    largest_file(step / "state").unlink()


def flip_bit(step: pathlib.Path) -> None:
    kernel = np.asarray(make_state(int(step.name)).params["encoder"]["kernel"]).tobytes()
    for path in step.rglob("*"):
        if path.is_file() and (at := path.read_bytes().find(kernel)) >= 0:
            data = bytearray(path.read_bytes())
            data[at + 100] ^= 1
            path.write_bytes(data)
            return
    pytest.fail("no file holds the bytes: arrays below some size are stored compressed, take a larger one")


def drop_record(step: pathlib.Path) -> None:
    (step / "_CHECKPOINT_METADATA").unlink()


def change_record(step: pathlib.Path) -> None:
    path = step / "_CHECKPOINT_METADATA"
    path.write_text(path.read_text().replace("float32", "float3!", 1))


def empty(step: pathlib.Path) -> None:
    for path in step.rglob("*"):
        if path.is_file():
            path.unlink()


@pytest.mark.parametrize("damage", [truncate, delete, flip_bit, drop_record, change_record, empty])
def test_damaged_one_is_passed_over_and_moved_aside(tmp_path, caplog, damage):
    save(tmp_path, 1, 2)
    damage(tmp_path / "2")
    checkpoints = Checkpoints(tmp_path, keep=5, best_mode=None)
    with caplog.at_level(logging.WARNING):
        step, restored = checkpoints.restore(abstract(make_state()))
    assert step == 1
    assert_same(make_state(1), restored)
    warned = [r.getMessage() for r in caplog.records if "passed over" in r.getMessage()]
    assert len(warned) == 1
    assert f"checkpoint {tmp_path / '2'} is damaged and passed over: " in warned[0]
    assert "handler" not in warned[0]  # the cause, not what Orbax made of it
    assert steps_in(tmp_path) == ["1", "2.damaged"]
    # The step can be saved again, and is read from then on.
    assert checkpoints.latest_step() == 1
    checkpoints.save(2, make_state(2))
    assert checkpoints.restore(abstract(make_state()))[0] == 2
    checkpoints.close()


def test_flipped_bit_is_named(tmp_path, caplog):
    save(tmp_path, 1, 2)
    flip_bit(tmp_path / "2")
    checkpoints = Checkpoints(tmp_path, keep=5, best_mode=None)
    checkpoints.restore(abstract(make_state()))
    checkpoints.close()
    assert "encoder/kernel" in caplog.text


def test_all_damaged_is_an_error_each_time(tmp_path):
    save(tmp_path, 1, 2)
    truncate(tmp_path / "1")
    flip_bit(tmp_path / "2")
    checkpoints = Checkpoints(tmp_path, keep=5, best_mode=None)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"every checkpoint .* is damaged \(steps \[2, 1\]\)"):
            checkpoints.restore(abstract(make_state()))
    checkpoints.close()
    assert steps_in(tmp_path) == ["1", "2"]


def test_another_model_is_no_damage(tmp_path):
    save(tmp_path, 1)
    checkpoints = Checkpoints(tmp_path, keep=5, best_mode=None)
    with pytest.raises(
        CheckpointError, match=r"params/encoder/kernel is float32 \[64, 8\] there and .* \[24, 8\]"
    ):
        checkpoints.restore(abstract(make_state(width=24)))
    checkpoints.close()
    assert steps_in(tmp_path) == ["1"]


def test_half_written_directories_are_ignored(tmp_path):
    save(tmp_path, 1)
    (tmp_path / "2.orbax-checkpoint-tmp" / "state").mkdir(parents=True)
    (tmp_path / "2.orbax-checkpoint-tmp" / "state" / "manifest.ocdbt").write_bytes(b"half")
    checkpoints = Checkpoints(tmp_path, keep=5, best_mode=None)
    assert checkpoints.restore(abstract(make_state()))[0] == 1
    checkpoints.save(2, make_state(2))
    checkpoints.close()
    assert steps_in(tmp_path) == ["1", "2"]


def test_read_params(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=5, best_mode="max")
    for step, metric in {1: 0.5, 2: 0.9, 3: 0.1}.items():
        checkpoints.save(step, make_state(step), metric)
    checkpoints.close()
    for wanted, step in ((None, 3), ("best", 2), (1, 1)):
        params = read_params(tmp_path, wanted)
        assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(params))
        assert_same(params, make_state(step).params)
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 9 .* it has \[1, 2, 3\]"):
        read_params(tmp_path, 9)
    with pytest.raises(CheckpointError, match="no checkpoint in"):
        read_params(tmp_path / "nowhere")
    flip_bit(tmp_path / "3")
    with pytest.raises(CheckpointError, match=r"3 is damaged: .* params/encoder/kernel"):
        read_params(tmp_path)


def test_no_pickles(tmp_path):
    save(tmp_path, 1)
    names = {path.name for path in (tmp_path / "1").rglob("*")}
    assert not [name for name in names if name.endswith((".pkl", ".pickle", ".npy", ".npz"))]
    record = json.loads((tmp_path / "1" / "_CHECKPOINT_METADATA").read_text())["custom_metadata"]["record"]
    assert record["leaves"]["params/head/on"] == ["bool", [3], 2]
    assert record["leaves"]["params/head/scale"] == ["bfloat16", [3], 3 * 0x8000]


OTHER_MESH = """
import sys
import jax, numpy as np
jax.config.update("jax_num_cpu_devices", int(sys.argv[2]))
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from bert_jax.checkpoint import Checkpoints
devices = jax.devices()
mesh = jax.make_mesh((len(devices),), ("fsdp",), axis_types=(AxisType.Auto,))
abstract = {
    "w": jax.ShapeDtypeStruct((16, 8), np.float32, sharding=NamedSharding(mesh, P("fsdp", None))),
    "b": jax.ShapeDtypeStruct((8,), np.float32, sharding=NamedSharding(mesh, P())),
}
checkpoints = Checkpoints(sys.argv[1], keep=9, best_mode=None)
found = checkpoints.restore(abstract)
if found is None:
    step, values = 0, {"w": np.arange(128, dtype=np.float32).reshape(16, 8), "b": np.ones(8, np.float32)}
    state = {k: jax.device_put(values[k], abstract[k].sharding) for k in values}
else:
    step, state = found
    assert len(state["w"].sharding.device_set) == len(devices)
    np.testing.assert_array_equal(np.asarray(state["w"]), np.arange(128).reshape(16, 8) * 2.0**step)
    np.testing.assert_array_equal(np.asarray(state["b"]), np.full(8, 2.0**step))
state = jax.tree.map(lambda x: x * 2, state)
checkpoints.save(step + 1, state)
checkpoints.close()
print("reached", step + 1, len(devices))
"""


def test_restores_onto_other_numbers_of_devices(tmp_path):
    for step, devices in enumerate((1, 8, 2), start=1):
        run = subprocess.run(
            [sys.executable, "-c", OTHER_MESH, str(tmp_path / "c"), str(devices)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        assert run.stdout.strip() == f"reached {step} {devices}"


SAVING = """
import sys
import jax, jax.numpy as jnp, numpy as np
from bert_jax.checkpoint import Checkpoints
checkpoints = Checkpoints(sys.argv[1], keep=2, best_mode="max")
state = {"w": jnp.zeros((300, 1000)), "step": jnp.int32(0)}
abstract = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state)
found = checkpoints.restore(abstract)
step = 0
if found is not None:
    step, state = found
    assert int(state["step"]) == step
    np.testing.assert_array_equal(state["w"], np.full((300, 1000), step))
print(step, flush=True)
while True:
    step += 1
    state = jax.tree.map(lambda x: x + 1, state)
    checkpoints.save(step, state, metric=-step % 7)
    print(step, flush=True)
"""


def test_killed_while_saving_it_goes_on(tmp_path):
    reached, resumed = 0, []
    for saves in (2, 5, 9):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVING, str(tmp_path / "c")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        lines = [process.stdout.readline() for _ in range(saves + 1)]
        time.sleep(0.003 * saves)  # somewhere in the middle of writing
        process.send_signal(signal.SIGKILL)
        errors = process.communicate()[1]
        assert lines[-1], errors
        assert "damaged" not in errors
        resumed.append(int(lines[0]))
        # `save` waits for the save before it: of the steps that were announced, all but the last are there.
        assert reached - 1 <= resumed[-1]
        reached = int(lines[-1])
    assert resumed[0] == 0 < resumed[1] < resumed[2]


@pytest.mark.parametrize(
    "content", [b"[" * 10_000, b"{}", b'{"custom_metadata": {"record": [], "crc32": 0}}', b"\xff"]
)
def test_a_record_that_is_none_is_damage(tmp_path: pathlib.Path, content: bytes) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "_CHECKPOINT_METADATA").write_bytes(content)
    with pytest.raises(checkpoint_record.DamagedError, match="_CHECKPOINT_METADATA"):
        checkpoint_record.read(epath.Path(tmp_path), 7)
