"""slurm.sh and gke.sh against stand-ins, and the commands of the README and of docs/tpu.md as dry runs."""

import re
import signal
import subprocess

import pytest
import yaml
from cloud import AWKWARD, ROOT, Cloud, wait_until

SLURM = ROOT / "launch" / "slurm.sh"
GKE = ROOT / "launch" / "gke.sh"
JOB = ["--nodes=2", "--gpus-per-node=8", "--time=24:00:00"]
TPU = ["--name=bert", "--image=eu-docker.pkg.dev/p/r/bert:1", "--tpu=tpu-v5-lite-podslice", "--topology=4x4"]
TPU += ["--workers=4", "--chips=4"]
GPU = ["--name=bert", "--image=image", "--gpu=nvidia-h100-80gb", "--workers=2", "--gpus=8"]
RUN = ["--", "--config=configs/tiny.py", "--workdir=gs://bucket/run"]


@pytest.fixture
def cloud(tmp_path):
    cloud = Cloud(tmp_path / "cloud")
    cloud.env |= {"SLURM_JOB_ID": "5000", "SLURMD_NODENAME": "node-1"}
    return cloud


def job(cloud: Cloud, *flags: str) -> str:
    """Submits, and returns the batch script that sbatch got."""
    printed, _ = cloud.run(SLURM, *JOB, "--dry-run", *flags, *RUN, *AWKWARD)
    assert cloud.calls() == []
    cloud.run(SLURM, *JOB, "--python=/bin/true", *flags, *RUN, *AWKWARD)
    (call,) = cloud.calls("sbatch")
    assert call["arguments"] == []
    assert call["stdin"] == printed.replace(str(ROOT / ".venv/bin/python"), "/bin/true")
    cloud.forget()
    path = cloud.folder / "job.sh"
    path.write_text(call["stdin"])
    return str(path)


def headers(path: str) -> list[str]:
    with open(path) as file:
        lines = file.read().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    return [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (JOB[1:], "--nodes is missing"),
        (JOB[:2], "--time is missing"),
        ([*JOB, "--time=soon"], "--time=soon: it must be a time of Slurm"),
        ([*JOB, "--partition=a b"], "--partition=a b: it must be letters"),
        ([*JOB, "--account=x\n#SBATCH --nodes=99"], "--account=x #SBATCH --nodes=99: it must be"),
        ([*JOB, "--sbatch-flag=--wrap=a b"], "--sbatch-flag=--wrap=a b: it must be a flag of sbatch"),
        ([*JOB, "--python=/no/python"], "--python=/no/python is not there"),
    ],
)
def test_what_slurm_refuses(cloud, words, message):
    _, error = cloud.run(SLURM, *words, *RUN, code=2)
    assert error.startswith(f"error: {message}") and error.count("\n") == 1
    assert cloud.calls() == []


def test_a_job_has_a_task_for_each_gpu(cloud):
    path = job(cloud, "--partition=gpu", "--account=lab", "--cpus-per-gpu=12", "--sbatch-flag=--exclusive")
    assert headers(path) == [
        "--job-name=bert_jax",
        "--nodes=2",
        "--ntasks-per-node=8",
        "--gpus-per-node=8",
        "--time=24:00:00",
        "--partition=gpu",
        "--account=lab",
        "--cpus-per-task=12",
        "--output=bert_jax-%j.log",
        "--open-mode=append",
        "--requeue",
        "--signal=B:TERM@120",
        "--exclusive",
    ]
    cloud.set("steps", "ends")
    cloud.run(path)
    (step,) = cloud.calls("srun")
    flags = ["--gpu-bind=none", "--kill-on-bad-exit=0", "--wait=600"]
    run = ["/bin/true", "-m", "bert_jax.main", *RUN[1:], *AWKWARD, "--distributed=auto"]
    assert step["arguments"] == flags + run
    # 5000 modulo 4096, above 61440: as JAX would choose, on the first node's own address.
    assert step["env"]["JAX_COORDINATOR_BIND_ADDRESS"] == "node-1:62344"
    assert step["env"]["JAX_COORDINATOR_PORT"] == "62344"
    assert cloud.calls("scontrol") == []


def test_where_the_coordinator_listens(cloud):
    path = job(cloud)
    cloud.set("address", "127.0.1.1")
    _, error = cloud.run(path, code=2)
    assert "node-1 is 127.x to itself" in error and cloud.calls("srun") == []
    cloud.forget()
    cloud.set("steps", "ends")
    cloud.run(job(cloud, "--coordinator-bind=0.0.0.0"))
    assert cloud.calls("srun")[0]["env"]["JAX_COORDINATOR_BIND_ADDRESS"] == "0.0.0.0:62344"
    cloud.forget()
    cloud.run(job(cloud, "--nodes=1"))
    env = cloud.calls("srun")[0]["env"]
    assert env["JAX_COORDINATOR_ADDRESS"] == env["JAX_COORDINATOR_BIND_ADDRESS"] == "127.0.0.1:62344"


@pytest.mark.parametrize(
    ("code", "state", "restarted", "requeued"),
    [
        (143, "RUNNING", 0, True),
        (0, "RUNNING", 0, False),  # it had just ended
        (2, "RUNNING", 0, False),  # it would be refused again
        (143, "COMPLETING", 0, False),  # it was cancelled
        (143, "RUNNING", 3, False),
    ],
)
def test_a_job_that_is_told_to_leave_saves_and_goes_back(cloud, code, state, restarted, requeued):
    path = job(cloud, "--restarts=3")
    cloud.set("exits", code)
    cloud.set("job", state)
    cloud.env["SLURM_RESTART_COUNT"] = str(restarted)
    batch = cloud.start(path)
    wait_until((cloud.folder / "ready").exists)
    batch.send_signal(signal.SIGTERM)
    wait_until(lambda: cloud.calls("scancel"))
    batch.send_signal(signal.SIGTERM)  # as a grace time may bring; the tasks must not get a second one
    said = batch.communicate(timeout=300)
    assert batch.returncode == code, said
    (told,) = cloud.calls("scancel")
    assert told["arguments"] == ["--signal=TERM", "5000"]
    assert [c["arguments"] for c in cloud.calls("scontrol")] == ([["requeue", "5000"]] if requeued else [])


def test_a_job_that_fails_by_itself_is_not_put_back(cloud):
    path = job(cloud)
    cloud.set("steps", "ends")
    cloud.set("exits", 1)
    cloud.run(path, code=1)
    assert cloud.calls("scontrol", "scancel") == []


def manifest(cloud: Cloud, *words: str) -> list[dict]:
    """Applies, and returns the documents that kubectl got."""
    printed, _ = cloud.run(GKE, "--dry-run", *words)
    assert cloud.calls() == []
    cloud.run(GKE, *words)
    (call,) = cloud.calls("kubectl")
    assert call["stdin"] == printed
    assert call["arguments"][-2:] == ["apply", "--filename=-"]
    cloud.forget()
    return list(yaml.safe_load_all(printed))


def as_kubernetes_does(text: str, known: dict[str, str]) -> str:
    """$(NAME) of a command: $$ is one $, an unknown name stays."""
    return re.sub(
        r"\$\$|\$\(([^)]*)\)", lambda m: "$" if m[0] == "$$" else known.get(m[1], m[0]), text, flags=re.DOTALL
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*TPU[1:], *RUN], "--name is missing"),
        ([*TPU, "--gpu=nvidia-l4", *RUN], "--tpu and --gpu do not go together"),
        ([*TPU, "--workers=3", *RUN], "--topology=4x4 has 16 chips, not 12: --workers=3 of --chips=4"),
        ([*TPU, "--topology=big", *RUN], "--topology=big: it must be a shape"),
        ([*TPU, "--name=Bert", *RUN], "--name=Bert: it must be lower-case"),
        ([*TPU, "--", "--workdir=runs/x"], "--workdir=runs/x: it must be on gs://"),
        ([*GPU, "--chips=4", *RUN], "--topology and --chips go with --tpu"),
        ([*GPU, *RUN, "bell\a"], "a control character in bell?"),
    ],
)
def test_what_gke_refuses(cloud, words, message):
    said, error = cloud.run(GKE, *words, code=2)
    assert error.startswith(f"error: {message}") and error.count("\n") == 1 and said == ""
    assert cloud.calls() == []


def test_a_jobset_on_tpus(cloud):
    (jobset,) = manifest(cloud, *TPU, "--spot", "--service-account=trainer", *RUN, *AWKWARD)
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert jobset["spec"]["failurePolicy"]["maxRestarts"] == 100
    (worker,) = jobset["spec"]["replicatedJobs"]
    spec = worker["template"]["spec"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (4, 4, 0)
    assert spec["completionMode"] == "Indexed"
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob" and rule["onExitCodes"]["values"] == [2]
    pod = spec["template"]["spec"]
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "4x4",
        "cloud.google.com/gke-spot": "true",
    }
    assert (pod["restartPolicy"], pod["serviceAccountName"]) == ("Never", "trainer")
    (container,) = pod["containers"]
    assert container["name"] == rule["onExitCodes"]["containerName"]
    assert container["image"] == "eu-docker.pkg.dev/p/r/bert:1"
    assert container["resources"]["limits"] == {"google.com/tpu": 4}
    command = [as_kubernetes_does(word, {"POD_IP": "10.0.0.7"}) for word in container["command"]]
    assert command == ["python", "-m", "bert_jax.main", *RUN[1:], *AWKWARD, "--distributed=auto"]
    assert {e["name"]: e.get("value") for e in container["env"]} == {
        "POD_IP": None,
        "JAX_COORDINATOR_PORT": "8482",
        "JAX_COORDINATOR_BIND_ADDRESS": "$(POD_IP):8482",
    }


def test_a_jobset_on_gpus_may_look_for_its_pods(cloud):
    role, binding, jobset = manifest(cloud, *GPU, "--namespace=lab", "--service-account=trainer", *RUN)
    assert [rule["resources"] for rule in role["rules"]] == [["pods", "services"], ["jobs"]]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "trainer", "namespace": "lab"}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert {document["metadata"]["namespace"] for document in (role, binding, jobset)} == {"lab"}
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 8}


def test_the_cluster_is_the_named_one(cloud):
    cloud.run(GKE, *GPU, "--context=a cluster", *RUN)
    assert cloud.calls("kubectl")[0]["arguments"] == ["--context=a cluster", "apply", "--filename=-"]


@pytest.mark.parametrize("document", ["README.md", "docs/tpu.md"])
def test_the_commands_of_the_documents(cloud, document):
    """Each runs as a dry run, in the order of the document."""
    text = (ROOT / document).read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    blocks = [block for block in blocks if re.search(r"launch/(tpu|slurm|gke)\.sh", block)]
    assert blocks
    script = "\n".join(blocks)
    script = re.sub(r"(launch/(?:slurm|gke)\.sh|launch/tpu\.sh \w+)", r"\1 --dry-run", script)
    wanted = len(re.findall(r"--dry-run", script))
    script = re.sub(r"^(?:python|pip|gcloud|docker) .*?(?<!\\)$", "", script, flags=re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        ["bash", "-euc", script], cwd=ROOT, env=cloud.env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert wanted >= 3 and cloud.calls() == []


def test_scripts_are_plain_enough_for_a_mac():
    """Its bash is 3.2: no associative arrays, no mapfile, no ${x@Q}, no ${x,,}."""
    for name in ("common", "tpu", "tpu_watch", "slurm", "gke"):
        text = (ROOT / "launch" / f"{name}.sh").read_text()
        found = re.findall(r"declare -A|mapfile|readarray|\$\{\w+@|\$\{\w+(?:,,|\^\^)|\|&|&>>", text)
        assert found == [], name
