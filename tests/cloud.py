"""A PATH on which gcloud, kubectl and Slurm are stand-ins that record what they were asked for."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable

ROOT = pathlib.Path(__file__).parents[1]
# Arguments that a careless shell changes.
AWKWARD = [
    "two  words",
    "it's",
    'a "quoted" one',
    "$HOME `id` $(id) $(POD_IP)",
    "back\\slash \\n",
    "two\nlines\n",
    "",
    "*",
    "--flag=ü=&|;<>#~!",
    "{a,b} %USER%",
    "tab\t, cr\r, lines of Unicode\u2028\u2029\u0085 end",
]


class Cloud:
    """A PATH with stand-ins (tests/stand_in.py), and what they recorded."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        commands = folder / "bin"
        commands.mkdir(parents=True)
        stand_in = ROOT / "tests" / "stand_in.py"
        names = ["gcloud", "kubectl", "sbatch", "srun", "scancel", "squeue", "scontrol", "curl", "getent"]
        scripts = {name: f'"{sys.executable}" "{stand_in}" {name}' for name in names}
        scripts["python3.12"] = f'"{sys.executable}"'
        for name, script in scripts.items():
            (commands / name).write_text(f'#!/bin/sh\nexec {script} "$@"\n')
            (commands / name).chmod(0o755)
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SLURM", "JAX_COORD"))},
            "PATH": f"{commands}:/usr/bin:/bin",
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "STAND_IN": str(folder),
        }

    def set(self, name: str, *lines: object) -> None:
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines))

    def start(self, *command: object, **more: object) -> subprocess.Popen:
        return subprocess.Popen(
            ["bash", *map(str, command)],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            **more,
        )

    def run(self, *command: object, code: int = 0, timeout: float = 600) -> tuple[str, str]:
        process = self.start(*command)
        said = tuple(part.decode() for part in process.communicate(timeout=timeout))
        assert process.returncode == code, said
        return said

    def tpu(self, *words: str, code: int = 0) -> tuple[str, str]:
        return self.run(ROOT / "launch" / "tpu.sh", *words, code=code)

    def calls(self, *names: str) -> list[dict]:
        path = self.folder / "calls.jsonl"
        found = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [call for call in found if not names or call["name"] in names]

    def gcloud(self) -> list[list[str]]:
        """What gcloud was called with; the same look again and again is one."""
        calls = [call["arguments"] for call in self.calls("gcloud")]
        return [call for i, call in enumerate(calls) if i == 0 or call != calls[i - 1]]

    def trained(self) -> list[dict]:
        """The calls of bert_jax.main on the hosts."""
        return [c for c in self.calls("python") if c["arguments"][:2] == ["-m", "bert_jax.main"]]

    def forget(self) -> None:
        (self.folder / "calls.jsonl").unlink(missing_ok=True)

    def close(self) -> None:
        for pid in self.folder.glob("hosts/*/bert_jax_run/pid"):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.killpg(os.getpgid(int(pid.read_text())), signal.SIGKILL)


def wait_until(condition: Callable[[], object], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
