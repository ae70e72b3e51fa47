"""The launch scripts against stand-ins for gcloud, kubectl and Slurm: nothing here reaches a cloud."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess

import pytest
import small
from cloud import AWKWARD, ROOT, Cloud, wait_until

PLACE = ["--name=tpu-1", "--project=my-project", "--zone=us-east5-a"]
TYPE = ["--accelerator-type=v5litepod-16"]
RUN = ["--", "--config=configs/tiny.py", "--workdir=gs://bucket/run"]


@pytest.fixture
def cloud(tmp_path):
    cloud = Cloud(tmp_path / "cloud")
    yield cloud
    cloud.close()


@pytest.fixture
def tpu(cloud):
    """A TPU that is there, with the checkout on its hosts; the run there waits."""
    cloud.set("exits", "wait")
    cloud.tpu("create", *PLACE, *TYPE, "--poll=0")
    cloud.tpu("install", *PLACE)
    cloud.forget()
    return cloud


def test_help_says_every_flag_and_unknown_ones_are_refused(cloud):
    for script in ("tpu", "slurm", "gke"):
        path = ROOT / "launch" / f"{script}.sh"
        said, _ = cloud.run(path, "--help")
        for flag in set(re.findall(r"^    (--[a-z-]+)\)", path.read_text(), re.MULTILINE)):
            assert flag in said, f"{script}.sh --help does not tell of {flag}"
        place = ["run", *PLACE] if script == "tpu" else []
        _, error = cloud.run(path, *place, "--nmae=x", code=2)
        assert error == "error: unknown flag --nmae; see --help\n"
    assert cloud.calls() == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no command: one of create, install"),
        (["start"], "unknown command start: one of create"),
        (["create", *PLACE[1:], *TYPE], "--name is missing"),
        (["create", PLACE[0], PLACE[2], *TYPE], "--project is missing"),
        (["create", *PLACE[:2], *TYPE], "--zone is missing"),
        (["create", *PLACE], "--accelerator-type is missing"),
        (
            ["create", *PLACE, "--accelerator-type=v9-8"],
            "--runtime-version is missing",
        ),
        (["create", *PLACE, *TYPE, "--spot=yes"], "--spot takes no value"),
        (["create", "--name", "x"], "--name needs a value: --name=VALUE"),
        (["create", "--name=--help", *PLACE[1:], *TYPE], "--name=--help: it must be lower-case"),
        (["create", "--name=a;b", *PLACE[1:], *TYPE], "--name=a;b: it must be lower-case"),
        (["create", "tpu-1"], "unexpected argument tpu-1: write --FLAG=VALUE"),
        (["stop", *PLACE, "--spot"], "unknown flag --spot"),
        (["stop", *PLACE, "--", "x"], "stop takes nothing after --"),
        (["run", *PLACE], "nothing follows --"),
        (["run", *PLACE, "--", "--config=configs/tiny.py"], "no --workdir among what follows --"),
        (["watch", *PLACE, *TYPE, "--", "--workdir=runs/x"], "--workdir=runs/x: it must be on gs://"),
        (["watch", *PLACE, *TYPE, "--tries=-1", *RUN], "--tries=-1: it must be a whole number"),
        (["tensorboard", *PLACE], "--workdir is missing"),
    ],
)
def test_what_tpu_refuses(cloud, words, message):
    said, error = cloud.tpu(*words, code=2)
    assert error.startswith(f"error: {message}") and error.count("\n") == 1 and said == ""
    assert cloud.calls() == []


def test_a_tpu_is_asked_for_as_told(cloud):
    said, _ = cloud.tpu("create", *PLACE, *TYPE, "--spot", "--poll=0", "--create-flag=--labels=a=b c")
    create = cloud.gcloud()[0]
    assert create[:4] == ["compute", "tpus", "queued-resources", "create"]
    assert {"--node-id=tpu-1", "--spot", "--runtime-version=v2-alpha-tpuv5-lite", "--labels=a=b c"} < {
        *create
    }
    assert [line.split()[-1] for line in said.splitlines()] == [
        "WAITING_FOR_RESOURCES",
        "PROVISIONING",
        "ACTIVE",
    ]
    cloud.tpu("create", *PLACE, *TYPE, code=1)  # gcloud says why
    assert "--spot" not in cloud.gcloud()[-1]


def commands(cloud: Cloud) -> dict[str, list[str]]:
    return {
        "create": [*PLACE, *TYPE, "--spot", "--poll=0"],
        "install": [*PLACE, "--connect-flag=--internal-ip"],
        "run": [*PLACE, *RUN, *AWKWARD],
        "logs": [*PLACE, "--worker=0"],
        "tensorboard": [*PLACE, "--workdir=gs://bucket/run it's", "--port=7007"],
        "stop": [*PLACE, "--grace=5"],
        "delete": [*PLACE, "--yes"],
    }


def test_dry_runs_print_what_is_run(cloud, tmp_path):
    cloud.set("exits", "wait")
    (cloud.folder / "bin" / "tail").write_text("#!/bin/sh\n")  # which would follow the log for ever
    (cloud.folder / "bin" / "tail").chmod(0o755)
    again = Cloud(tmp_path / "again")
    again.set("exits", "wait")
    shutil.copy(cloud.folder / "bin" / "tail", again.folder / "bin" / "tail")
    again.env["XDG_CACHE_HOME"] = cloud.env["XDG_CACHE_HOME"]
    for command, words in commands(cloud).items():
        before = cloud.calls()
        printed, _ = (
            cloud.tpu(command, *words, "--dry-run")
            if "--" not in words
            else cloud.tpu(command, "--dry-run", *words)
        )
        assert cloud.calls() == before, "a dry run ran something"
        cloud.tpu(command, *words)
        again.run("-c", printed)
        if command == "run":
            wait_until(lambda: cloud.trained() and again.trained())
        if command == "create":
            again.set("states", "ACTIVE")
        assert again.gcloud() == cloud.gcloud(), command
    assert len(cloud.gcloud()) == 10
    assert [c["arguments"] for c in again.trained()] == [c["arguments"] for c in cloud.trained()]


def test_arguments_reach_the_run_unchanged(tpu):
    tpu.tpu("run", *PLACE, *RUN, *AWKWARD)
    wait_until(tpu.trained)
    (call,) = tpu.trained()
    assert call["arguments"] == ["-m", "bert_jax.main", *RUN[1:], *AWKWARD, "--distributed=auto"]
    # The coordinator listens where the others call it, and nowhere else.
    assert call["env"]["JAX_COORDINATOR_BIND_ADDRESS"] == "10.0.0.7:8482"


def test_a_second_run_on_a_host_is_refused_and_stop_ends_the_first(tpu):
    tpu.tpu("run", *PLACE, *RUN)
    _, error = tpu.tpu("run", *PLACE, *RUN, code=2)
    assert "a run is going on here" in error
    tpu.tpu("stop", *PLACE, "--grace=20")
    _, error = tpu.tpu("watch", *PLACE, *TYPE, *RUN, code=1)
    assert error.startswith("error: the run was stopped; the TPU is still there, and billed")
    tpu.tpu("run", *PLACE, *RUN)


def test_tensorboard_listens_here_only(tpu):
    tpu.tpu("tensorboard", *PLACE, "--workdir=gs://bucket/run")
    assert tpu.gcloud()[-1][-4:] == ["--", "-t", "-L", "localhost:6006:localhost:6006"]
    (call,) = [c for c in tpu.calls("python") if c["arguments"][:2] == ["-m", "tensorboard.main"]]
    assert call["arguments"][2:] == [
        "--logdir=gs://bucket/run",
        "--host=localhost",
        "--port=6006",
    ]


def test_delete_asks(tpu):
    _, error = tpu.tpu("delete", *PLACE, code=1)
    assert error == "error: nothing was deleted\n" and tpu.calls() == []


def test_every_host_gets_the_checkout_and_the_run(cloud):
    cloud.set("size", 3)
    cloud.tpu("create", *PLACE, *TYPE, "--poll=0")
    cloud.tpu("install", *PLACE)
    for number in range(3):
        copied = cloud.folder / "hosts" / str(number) / "bert_jax"
        assert (copied / "configs" / "base.py").read_text() == (ROOT / "configs" / "base.py").read_text()
        assert not (copied / ".git").exists()
    cloud.tpu("run", *PLACE, *RUN)
    cloud.tpu("watch", *PLACE, *TYPE, "--poll=0.1", *RUN)
    assert len(cloud.trained()) == 3


def test_the_environment_of_a_host(tpu):
    """A host without one gets it from requirements-tpu.txt, by an interpreter that is new enough."""
    host = tpu.folder / "hosts" / "0" / "bert_jax"
    shutil.rmtree(host / ".venv")
    log = tpu.folder / "pip"
    python = tpu.folder / "bin" / "python3.12"
    python.write_text(
        f"""#!/bin/sh
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pip "*) echo "$@" >>"{log}" ;;
  -V) echo Python 3.12.0 ;;
  *version_info*) echo 3.12 ;;
esac
"""
    )
    tpu.tpu("install", *PLACE)
    tpu.tpu("install", *PLACE)
    (installed,) = log.read_text().splitlines()  # the second time there is nothing to do
    assert installed.endswith("-r requirements.txt -r requirements-tpu.txt")


def test_a_host_whose_python_is_too_old_fetches_one(tpu):
    tools = tpu.folder / "tools"
    tools.mkdir()
    for tool in pathlib.Path("/usr/bin").iterdir():
        if not tool.name.startswith("python"):
            (tools / tool.name).symlink_to(tool)
    tpu.env["PATH"] = f"{tpu.folder / 'bin'}:{tools}"
    log = tpu.folder / "asked"
    fetched = tpu.folder / "fetched"
    shutil.move(tpu.folder / "bin" / "python3.12", fetched)
    (tpu.folder / "bin" / "python3").write_text(
        f"""#!/bin/sh
case "$*" in
  *version_info*) echo 3.10 ;;
  *"python find"*) echo "{fetched}" ;;
esac
echo "$@" >>"{log}"
"""
    )
    (tpu.folder / "bin" / "python3").chmod(0o755)
    # The environment there was made by the one that is fetched now.
    host = tpu.folder / "hosts" / "0" / "bert_jax"
    version = subprocess.run([fetched, "-V"], capture_output=True, text=True, check=True).stdout.strip()
    stamp = host / ".venv" / ".bert_jax"
    stamp.write_text(stamp.read_text().replace("Python 3.12.0", version))
    tpu.tpu("install", *PLACE)
    asked = [line for line in log.read_text().splitlines() if line.startswith("-m")]
    assert asked == [
        "-m pip install --user --quiet uv",
        "-m uv python install 3.12",
        "-m uv python find --system --managed-python 3.12",
    ]


def test_a_run_without_an_environment_is_refused(tpu):
    shutil.rmtree(tpu.folder / "hosts" / "0" / "bert_jax" / ".venv")
    _, error = tpu.tpu("run", *PLACE, *RUN, code=2)
    assert error == "error: there is no environment on this host: install first\n"


class TestWatch:
    def watch(self, cloud: Cloud, *words: str, code: int) -> tuple[str, str]:
        return cloud.tpu("watch", *PLACE, *TYPE, "--poll=0", "--backoff=0", *words, *RUN, code=code)

    def deletions(self, cloud: Cloud) -> int:
        return sum(call[3] == "delete" for call in cloud.gcloud())

    def test_a_dry_run_prints_all_that_it_may_run(self, tpu, tmp_path):
        printed, _ = tpu.tpu("watch", *PLACE, *TYPE, "--dry-run", *RUN)
        assert tpu.calls() == []
        again = Cloud(tmp_path / "again")
        again.env["XDG_CACHE_HOME"] = tpu.env["XDG_CACHE_HOME"]
        again.run("-c", f"set +e\n{printed}true")
        tpu.set("states", "SUSPENDING", "SUSPENDED")
        tpu.set("exits", "0")
        self.watch(tpu, code=0)
        ran, may_run = ({*map(tuple, c.gcloud())} for c in (tpu, again))
        assert ran < may_run
        assert {" ".join(call[2:4]) for call in may_run - ran} == {"tpu-vm ssh", "tpu-vm describe"}

    def test_what_the_run_refuses_is_not_tried_again(self, tpu):
        tpu.set("exits", 2)
        tpu.tpu("run", *PLACE, *RUN)
        _, error = self.watch(tpu, code=1)
        assert error.startswith("error: the run refused its arguments") and len(tpu.trained()) == 1
        assert self.deletions(tpu) == 0

    def test_a_crash_is_tried_again_so_often_only(self, tpu):
        tpu.set("exits", 1)
        said, error = self.watch(tpu, "--tries=2", code=1)
        assert error.startswith(
            "error: gave up after starting again 2 times; the TPU is still there, and billed"
        )
        assert "starting again, 2 of 2" in said and len(tpu.trained()) == 2
        assert self.deletions(tpu) == 0
        _, error = self.watch(tpu, "--tries=0", "--delete-when-done", code=1)
        assert error.endswith("the TPU is deleted\n") and self.deletions(tpu) == 1

    def test_a_run_that_was_killed_is_started_again_on_the_same_tpu(self, tpu):
        tpu.tpu("run", *PLACE, *RUN)
        wait_until(tpu.trained)
        pid = int((tpu.folder / "hosts/0/bert_jax_run/pid").read_text())
        os.killpg(os.getpgid(pid), signal.SIGKILL)
        tpu.set("exits", "0")
        said, _ = self.watch(tpu, code=0)
        assert "the run is gone" in said and "the run has ended: gs://bucket/run/result.json" in said
        assert len(tpu.trained()) == 2 and self.deletions(tpu) == 0

    def test_a_tpu_that_says_active_but_was_preempted(self, tpu):
        tpu.set("exits", "0")
        tpu.set("reachable", "no", "yes")
        tpu.set("vm", "PREEMPTED")
        said, _ = self.watch(tpu, code=0)
        assert "PREEMPTED, the run is PREEMPTED" in said and self.deletions(tpu) == 1

    def test_a_tpu_is_not_deleted_because_no_host_answers(self, tpu):
        tpu.set("reachable", "no")
        _, error = self.watch(tpu, code=1)
        assert error == "error: no host of tpu-1 answers, though it is there, and billed\n"
        assert self.deletions(tpu) == 0

    def test_a_network_that_fails_a_while_is_borne(self, tpu):
        tpu.set("exits", "0")
        tpu.tpu("run", *PLACE, *RUN)
        tpu.set("answers", *["no"] * 15, "yes")
        self.watch(tpu, code=0)
        tpu.set("answers", "no")
        _, error = self.watch(tpu, code=1)
        assert (
            "no answer from gcloud, 20 times in a row: ERROR: the network is unreachable: host not found"
            in error
        )

    def test_a_request_that_is_refused_is_made_again(self, tpu):
        tpu.set("exits", "0")
        tpu.set("states", "SUSPENDED")
        tpu.set("creates", "no", "no", "yes")
        said, _ = self.watch(tpu, code=0)
        assert said.count("that failed") == 2 and self.deletions(tpu) == 1 and len(tpu.trained()) == 1

    def test_a_tpu_that_somebody_deleted_is_not_made_again(self, tpu):
        (tpu.folder / "states").unlink()
        _, error = self.watch(tpu, code=2)
        assert error == "error: there is no tpu-1 in my-project, us-east5-a: ask for it with create\n"
        assert self.deletions(tpu) == 0


@pytest.mark.slow
def test_a_preempted_run_goes_on_and_loses_no_step(cloud, tmp_path):
    steps = 60
    config = small.config(
        tmp_path, **{"train.steps": steps, "checkpoint.every": 5, "train.log_every": 1, "model.dropout": 0.1}
    )
    # It is copied to the hosts by its path, as a user's own config would be by the checkout.
    config_file = small.write(config, tmp_path / "config.py")
    bucket = cloud.folder / "bucket"
    bucket.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {
        "JAX_PLATFORMS": "cpu",
        "HOME": os.environ.get("HOME", ""),  # whose caches of fonts and the like need not be made anew
        "JAX_COORDINATOR_PORT": str(port),
        "JAX_COORDINATOR_BIND_ADDRESS": f"127.0.0.1:{port}",
        # One process that --distributed=auto finds.
        **{"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "127.0.0.1", "SLURM_NTASKS": "1"},
        **{"SLURM_PROCID": "0", "SLURM_LOCALID": "0"},
    }
    cloud.set("env.json", json.dumps(env))

    run = ["--", f"--config={config_file}", "--workdir=gs://bucket/run"]

    def newest() -> int:
        folder = bucket / "run" / "checkpoints"
        return max((int(p.name) for p in folder.glob("*") if p.name.isdigit()), default=0)

    log = cloud.folder / "hosts" / "0" / "bert_jax_run" / "log"
    cloud.tpu("create", *PLACE, *TYPE, "--spot", "--poll=0")
    cloud.tpu("install", *PLACE)
    cloud.tpu("run", *PLACE, *run)
    watch = cloud.start(
        ROOT / "launch" / "tpu.sh", "watch", *PLACE, *TYPE, "--spot", "--poll=1", "--backoff=0", *run
    )
    try:
        wait_until(lambda: newest() >= 10)
        pid = int((log.parent / "pid").read_text())
        os.killpg(os.getpgid(pid), signal.SIGKILL)
        killed_at = newest()
        cloud.set("states", "SUSPENDING", "SUSPENDED")
        said, error = (part.decode() for part in watch.communicate(timeout=600))
    finally:
        watch.kill()
    assert watch.returncode == 0, (said, error)
    assert killed_at < steps, "the run ended before it was killed"
    states = [line.split()[-1] for line in said.splitlines() if "tpu-1: " in line]
    wanted = ["SUSPENDED", "WAITING_FOR_RESOURCES", "PROVISIONING", "ACTIVE", "ended"]
    assert [s for s in states if s in wanted] == wanted
    assert f"going on from the checkpoint of step {killed_at}" in log.read_text()

    metrics = small.metrics(bucket / "run")
    assert [m["step"] for m in metrics if m["split"] == "train"] == list(range(1, steps + 1))
    assert json.loads((bucket / "run" / "result.json").read_text())["steps"] == steps
