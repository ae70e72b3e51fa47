"""Plans: what a compiled step needs, counted from the compiler's own words."""

import json

import jax
import pytest
import small
import tiny_models

from bert_jax import config as config_lib
from bert_jax.planning import collectives, machines
from bert_jax.planning import plan as planner

HLO = """HloModule jit_step

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  ROOT %s = f32[] add(%x, %y)
}

%body (p: (s32[], f32[8,16])) -> (s32[], f32[8,16]) {
  %g = f32[8,16]{1,0} get-tuple-element(%p), index=1
  %r = f32[8,16]{1,0} all-reduce(%g), replica_groups=[1,4]<=[4], to_apply=%add
  ROOT %t = (s32[], f32[8,16]) tuple(%i, %r)
}

%few (p.1: (s32[], bf16[64])) -> pred[] {
  %limit = s32[]{:T(128)} constant(3)
  ROOT %lt = pred[]{:T(512)} compare(%i, %limit), direction=LT, metadata={op_name="while/cond/lt"}
}

%inner (p.2: (s32[], bf16[64])) -> (s32[], bf16[64]) {
  %q = (bf16[64]{0:T(8,128)(2,1)}, f32[8]{0}) all-reduce(%g, %h), replica_groups={{0,1}}, to_apply=%add
  ROOT %u = (s32[], bf16[64]) tuple(%i, %q)
}

ENTRY %main (a: f32[8,16], b: bf16[32]) -> f32[8,16] {
  %w = (s32[], f32[8,16]) while(%init), body=%body, backend_config={"known_trip_count":{"n":"12"}}
  %v = (s32[], bf16[64]{0}) while(%init.1), condition=%few, body=%inner, metadata={op_name="while"}
  %c = (bf16[32]{0}, bf16[128]{0}) all-gather-start(%b), replica_groups={{0,1,2,3}}, dimensions={0}
  %d = bf16[128]{0} all-gather-done(%c)
  %m = f32[2]{0} all-reduce(%h), replica_groups=mesh['data'=2,'fsdp'=4,'tensor'=1] {'data','fsdp'}
  %e = f32[4]{0} reduce-scatter(%f), replica_groups={{0,1},{2,3}}, to_apply=%add
  ROOT %o = f32[8,16]{1,0} get-tuple-element(%w), index=1
}
"""


def test_collectives_count_as_often_as_their_loop_runs():
    found = collectives.of(HLO, 8)
    assert found["all-reduce"] == {
        "count": 16,
        "bytes": pytest.approx(12 * 512 * 2 * 3 / 4 + 3 * (128 + 32) * 2 * 1 / 2 + 8 * 2 * 7 / 8),
    }
    assert found["all-gather"] == {"count": 1, "bytes": pytest.approx(256 * 3 / 4)}
    assert found["reduce-scatter"] == {"count": 1, "bytes": pytest.approx(16 * 2 * 1 / 2)}
    assert set(found) == {"all-reduce", "all-gather", "reduce-scatter"}


@pytest.mark.parametrize("name", ["v5e", "v5e:", "v9:4", "v5e:4by4", "cpu:x"])
def test_topologies_that_are_none_are_refused(name):
    with pytest.raises(machines.TopologyError, match="it must be CHIP:SHAPE"):
        machines.parse(name)


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (
            "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries "
            "(2.5G) exceeds available HBM (15.75G).",
            {"temporaries": 2684354560, "total": 2684354660},
        ),
        ("RESOURCE_EXHAUSTED: Used 21.00G of 15.75G hbm. Exceeded", {"total": 21 * 2**30}),
        ("RESOURCE_EXHAUSTED", {}),
    ],
)
def test_what_does_not_fit_is_told_as_far_as_the_compiler_tells(message, found):
    assert planner._without_room(message, 100) == found


@pytest.mark.parametrize("start", [1, 4, 500])
@pytest.mark.parametrize(("limit", "largest"), [(1000.0, 102), (139.0, 0), (140.0, 1), (50_000.0, 1024)])
def test_the_largest_batch_is_found_in_few_compilations(start, limit, largest):
    """A memory that grows by a little less than the batch, on what no batch changes; 8 rows a unit."""
    tried = []

    class Made(planner.Planner):
        def __init__(self):
            self._config, self._devices = config_lib.default(), jax.devices()[:1]
            self._config.train.update({"batch_size": 8 * start, "accumulation": 8})

        def plan(self, train__batch_size):
            units, over = divmod(train__batch_size, 8)
            assert not over
            tried.append(units)
            total = 130.0 + 10 * units + 4 * (units**0.9 - units)
            memory = {"parameters": 40, "optimizer": 60, "total": total}
            return {"fits": total <= limit, "phases": [{"hbm_bytes": memory, "hbm_limit": limit}]}

    size, found = Made().largest_batch(most=8 * 1024)
    assert (size, found["fits"]) == (8 * largest, largest > 0)
    assert len(tried) == len(set(tried)) <= 6


def test_a_kernel_that_asks_the_device_is_not_planned():
    config = config_lib.default()
    config.train.steps = 1
    config.model.update({"attention_kernel": "cudnn", "attention_dropout": 0.0, "dtype": "bfloat16"})
    config_lib.validate(config)
    with pytest.raises(config_lib.ConfigError, match='"cudnn" asks the GPU itself'):
        planner.Planner(config, jax.devices(), machines.CHIPS["h100"])


def plan(folder, config, *arguments):
    done = tiny_models.run(
        folder, "plan", f"--config={small.write(config, folder / 'config.py')}", *arguments
    )
    return done, json.loads(done.stdout) if done.returncode == 0 else done.stderr.decode()


def test_a_plan_of_eight_devices(tmp_path):
    config = small.config(tmp_path, **{"objective.nsp.weight": 1.0})
    done, copies = plan(tmp_path, config, "--topology=cpu:8")
    assert done.returncode == 0, copies
    (phase,) = copies["phases"]
    memory = phase["hbm_bytes"]
    assert copies["fits"] and copies["mesh"] == {"data": 8, "fsdp": 1, "tensor": 1, "sequence": 1}
    assert memory["parameters"] == 4 * copies["parameters"]
    assert memory["optimizer"] == pytest.approx(2 * memory["parameters"], rel=1e-3)
    kinds = ("parameters", "optimizer", "batch", "temporaries", "code")
    assert memory["total"] == pytest.approx(sum(memory[kind] for kind in kinds), rel=1e-3)
    # Each gradient crosses the ring once, the word table's two parts (of its lookup and of the head) apart.
    ring = 2 * 7 / 8 * (memory["parameters"] + 4 * 256 * 32)
    assert 0.99 * ring <= phase["collectives"]["all-reduce"]["bytes"] < 1.01 * ring
    assert phase["step_seconds"] == max(phase["seconds"].values())
    assert sum(phase["flops"].values()) > 0

    done, shared = plan(tmp_path, config, "--topology=cpu:8", "--config.mesh.fsdp=8", "--config.mesh.data=1")
    assert done.returncode == 0, shared
    assert shared["parameters"] == copies["parameters"]
    assert shared["phases"][0]["hbm_bytes"]["parameters"] < 0.3 * memory["parameters"]
    assert "all-gather" in shared["phases"][0]["collectives"]


def test_what_cannot_be_planned_is_said(tmp_path):
    config = small.config(tmp_path)
    _, said = plan(tmp_path, config, "--topology=v5e")
    assert said.splitlines()[-1].startswith("error: --topology=v5e: it must be CHIP:SHAPE")
    _, said = plan(tmp_path, config, "--topology=cpu:6")
    assert "train.batch_size / train.accumulation = 8 is not a multiple" in said.splitlines()[-1]
    _, said = plan(tmp_path, config, "--topology=cpu:8", "--config.mesh.fsdp=3")
    assert "do not make up the 8 devices" in said.splitlines()[-1]
