"""What tests/cloud.py puts on the PATH in place of gcloud, kubectl, sbatch, srun and their like.

    python tests/stand_in.py NAME ARGUMENTS

writes its arguments into $STAND_IN/calls.jsonl, and behaves as far as the scripts need it: a queued resource
is the file `states` (one state a line; `describe` tells the first and leaves the last), a host of a TPU is a
directory in which ssh has a plain POSIX shell evaluate the command.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

FOLDER = pathlib.Path(os.environ["STAND_IN"])
STATES, HOSTS = FOLDER / "states", FOLDER / "hosts"


def pop(name: str, default: str) -> str:
    """Returns the first line of a file and takes it away, but for the last one."""
    path = FOLDER / name
    lines = path.read_text().splitlines() if path.exists() else [default]
    if len(lines) > 1:
        path.write_text("\n".join(lines[1:]) + "\n")
    return lines[0]


def fail(message: str, code: int = 1) -> None:
    print(f"ERROR: {message}", file=sys.stderr)
    sys.exit(code)


def boot(host: pathlib.Path) -> None:
    """A new host: its home, with an environment that needs no installation."""
    python = host / "bert_jax" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" python "$@"\n')
    python.chmod(0o755)
    root = pathlib.Path(__file__).parents[1]
    names = ["requirements.txt", "requirements-tpu.txt"]
    stamp = subprocess.run(["cksum"], input=b"".join((root / n).read_bytes() for n in names), stdout=-1)
    (python.parents[1] / ".bert_jax").write_text(f"{stamp.stdout.decode().strip()} Python 3.12.0\n")


def power_off() -> None:
    """Ends what runs on the hosts, at once, and their disks."""
    for pid in HOSTS.glob("*/bert_jax_run/pid"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(os.getpgid(int(pid.read_text())), signal.SIGKILL)
    shutil.rmtree(HOSTS, ignore_errors=True)


def gcloud(arguments: list[str]) -> None:
    words = [a for a in arguments if not a.startswith("-")]
    flags = dict(a.removeprefix("--").partition("=")[::2] for a in arguments if a.startswith("--"))
    what = " ".join(words[2:4])
    hosts = sorted(HOSTS.glob("*")) if HOSTS.exists() else []
    if flags.get("worker", "all") != "all":
        hosts = [HOSTS / flags["worker"]]
    if what == "queued-resources describe":
        if pop("answers", "yes") != "yes":
            fail("the network is unreachable: host not found")
        if not STATES.exists():
            fail("(gcloud.compute.tpus.queued-resources.describe) NOT_FOUND: Resource was not found")
        print(pop("states", ""))
    elif what == "queued-resources create":
        if STATES.exists():
            fail("ALREADY_EXISTS")
        if pop("creates", "yes") != "yes":
            fail("RESOURCE_EXHAUSTED: quota")
        STATES.write_text("WAITING_FOR_RESOURCES\nPROVISIONING\nACTIVE\n")
        for number in range(int(pop("size", "1"))):
            boot(HOSTS / str(number))
    elif what == "queued-resources delete":
        if not STATES.exists():
            fail("NOT_FOUND: Resource was not found")
        STATES.unlink()
        power_off()
    elif what == "tpu-vm describe":
        print(pop("vm", "READY"))
    elif what == "tpu-vm scp":
        for host in hosts:
            shutil.copy(words[4], host / words[5].partition(":")[2])
    elif what == "tpu-vm ssh":
        if not hosts or pop("reachable", "yes") != "yes":
            fail("ssh: connect to host port 22: No route to host", 255)
        codes = []
        for host in hosts:
            command = " ".join(flags["command"].split(" "))  # as gcloud and ssh do it
            codes.append(
                subprocess.run(
                    ["sh", "-c", command], cwd=host, env={**os.environ, "HOME": str(host)}
                ).returncode
            )
        sys.exit(max(codes))
    else:
        fail(f"not played: {what}", 99)


def python(arguments: list[str]) -> None:
    """A host's interpreter: trains in earnest where $STAND_IN/bucket is, else ends as `exits` says."""
    if arguments == ["-V"]:
        print("Python 3.12.0")
    if arguments[:2] != ["-m", "bert_jax.main"]:
        return
    bucket = FOLDER / "bucket"
    if bucket.exists():
        env = {**os.environ, **json.loads((FOLDER / "env.json").read_text())}
        arguments = [a.replace("gs://bucket", str(bucket)) for a in arguments]
        os.execve(sys.executable, [sys.executable, *arguments], env)
    code = pop("exits", "0")
    if code == "wait":
        signal.pause()
    sys.exit(int(code))


def srun(arguments: list[str]) -> None:
    (FOLDER / "step").write_text(str(os.getpid()))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(int(pop("exits", "143"))))
    (FOLDER / "ready").touch()
    if pop("steps", "waits") == "waits":
        signal.pause()
    sys.exit(int(pop("exits", "0")))


def main() -> None:
    name, arguments = sys.argv[1], sys.argv[2:]
    call = {"name": name, "arguments": arguments}
    if name in ("sbatch", "kubectl"):
        call["stdin"] = sys.stdin.buffer.read().decode()
    if name in ("srun", "python"):
        call["env"] = {k: v for k, v in os.environ.items() if k.startswith("JAX_")}
    with (FOLDER / "calls.jsonl").open("a") as file:
        file.write(json.dumps(call) + "\n")
    if name == "scancel":
        os.kill(int((FOLDER / "step").read_text()), signal.SIGTERM)
    elif name == "squeue":
        print(pop("job", "RUNNING"))
    elif name == "curl":
        print("10.0.0.7", end="")
    elif name == "getent":
        print(pop("address", "10.0.0.7") + " STREAM node-1")
    elif name in ("gcloud", "python", "srun"):
        {"gcloud": gcloud, "python": python, "srun": srun}[name](arguments)


if __name__ == "__main__":
    main()
