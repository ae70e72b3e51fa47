"""Errors of the user's are one line that names the key and the value, and an exit code."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
GOOD = "from bert_jax import config\ndef get_config():\n    c = config.default()\n    c.train.steps = 1\n"
CONFIGS = {
    "good.py": GOOD + "    return c\n",
    "typo.py": GOOD + "    c.train.step = 3\n    return c\n",
    "raises.py": GOOD + "    return 1 / 0\n",
    "wrong.py": GOOD + "    raise ValueError('no such recipe')\n",
    "syntax.py": GOOD + "    return (c\n",
    "imports.py": "import no_such_module\n" + GOOD,
    "nothing.py": GOOD,
    "empty.py": "",
}
# Runs the start of a command whose main does as its first argument says.
COMMAND = """
import sys
from bert_jax import flags
from bert_jax.config import ConfigError
def main():
    if what == "open": open("/nowhere/text")
    if what == "interrupt": raise KeyboardInterrupt
    if what == "fault": int("x")
    if what == "full": raise OSError(28, "No space left on device", "/disk/file")
    if what == "print": print("x" * 10_000_000)
    if what == "config": raise ConfigError("two\\nlines")
what = sys.argv.pop(1)
flags.run(main)
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    for name, text in CONFIGS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def run(folder: pathlib.Path, *command: str) -> subprocess.CompletedProcess[str]:
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


def line_of(result: subprocess.CompletedProcess[str]) -> str:
    """The single line on stderr of a refused command."""
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1, result.stderr
    return result.stderr.removeprefix("error: ").removesuffix("\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--config=good.py", "--config.train.stepz=1"],
            "unknown config key train.stepz; did you mean train.steps?",
        ),
        (
            ["--config=good.py", "--config.data.buckets=(16,)", "--config.data.buckets=(32,)"],
            "--config.data.buckets is given twice: it would be both together; give it once",
        ),
        (["--config=good.py", "--config.steps=1"], "unknown config key steps; did you mean train.steps?"),
        (
            ["--config=good.py", "--config.train.steps=abc"],
            "config key train.steps = 'abc': it must be a whole number",
        ),
        (
            ["--config=good.py", "--config.train.steps=1.5"],
            "config key train.steps = '1.5': it must be a whole number",
        ),
        (
            ["--config=good.py", "--config.optimizer.b1=x"],
            "config key optimizer.b1 = 'x': it must be a number",
        ),
        (
            ["--config=good.py", "--config.data.packing=7"],
            "config key data.packing = '7': it must be true or false",
        ),
        (
            ["--config=good.py", "--config.data.lowercase=maybe"],
            "config key data.lowercase = 'maybe': it must be true, false or None",
        ),
        (["--config=good.py", "--config.data.seq_len=3"], "data.seq_len = 3: it must be at least 4"),
        (
            ["--config=good.py", "--config.data.buckets=(16, 32)"],
            "data.buckets is for fine-tuning: pretraining has one row length",
        ),
        (["--config.train.steps=3", "--config=good.py"], "--config=FILE must come before --config.KEY=VALUE"),
        (["--config=typo.py"], "unknown config key train.step; did you mean train.steps?"),
        (
            ["--config=none.py"],
            "config file none.py is not there: name a Python file such as configs/tiny.py",
        ),
        (["--config=raises.py"], "config file raises.py, line 5: ZeroDivisionError: division by zero"),
        (["--config=wrong.py"], "config file wrong.py, line 5: ValueError: no such recipe"),
        (["--config=syntax.py"], "config file syntax.py, line 5: '(' was never closed"),
        (
            ["--config=imports.py"],
            "config file imports.py, line 1: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        (["--config=empty.py"], "config file empty.py defines no get_config()"),
        ([], "--config=FILE is required; see --help"),
        (["--config=good.py", "--mode=test"], "--mode=test: value should be one of <train|eval>"),
        (["--config=good.py", "more"], "unexpected argument more: write --FLAG=VALUE; see --help"),
        (["--config=good.py", "--num_processes=2"], "--coordinator is missing: "),
    ],
)
def test_main_refuses(folder, arguments, message):
    result = run(folder, "-m", "bert_jax.main", "--workdir=w", *arguments)
    assert line_of(result).startswith(message)
    assert not (folder / "w").exists()


def test_unknown_flag_and_missing_workdir(folder):
    unknown = line_of(run(folder, "-m", "bert_jax.main", "--config=good.py", "--workdri=w"))
    assert "'workdri'" in unknown
    assert "workdir" in unknown.split("mean")[1]
    assert (
        line_of(run(folder, "-m", "bert_jax.main", "--config=good.py")) == "--workdir is required; see --help"
    )


PRINTS_CONFIG = """
import sys
from bert_jax import config, flags
given = flags.define_config()
flags.run(lambda: sys.stdout.write(config.to_json(given.value)))
"""


def test_a_runs_config_stands_for_a_config_file(folder):
    """Whole, with its tuples and what is None; keys are set over it as over a recipe's."""
    setting = ["--config.data.buckets=(16, 32)", "--config.data.lowercase=false", "--config.seed=3"]
    first = run(folder, "-c", PRINTS_CONFIG, "--config=good.py", *setting)
    assert first.returncode == 0, first.stderr
    (folder / "run").mkdir()
    (folder / "run" / "config.json").write_text(first.stdout)
    for given in (["--config=run/config.json"], ["--config", str(folder / "run" / "config.json")]):
        again = run(folder, "-c", PRINTS_CONFIG, *given)
        assert (again.returncode, again.stderr) == (0, "")
        assert again.stdout == first.stdout
    other = ["--config.data.buckets=(8,)", "--config.data.lowercase=None", "--config.seed=3"]
    third = run(folder, "-c", PRINTS_CONFIG, "--config=good.py", *other)
    fourth = run(folder, "-c", PRINTS_CONFIG, "--config=run/config.json", *other)
    assert fourth.stdout == third.stdout != first.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file or directory: config.json"),
        ("{", "config.json is not JSON: "),
        ("{}", "config.json was not written in format "),
        ('{"format": 1, "train": {"stepz": 1}}', "config.json has the unknown key train.stepz"),
        ('{"format": 1, "train": {"steps": "x"}}', "config.json: "),
    ],
)
def test_a_config_json_that_is_none_is_told(folder, content, message):
    if content is not None:
        (folder / "config.json").write_text(content)
    line = line_of(run(folder, "-c", PRINTS_CONFIG, "--config=config.json"))
    assert line.startswith(message)


def test_a_key_given_as_a_flag_is_told_how(folder):
    line = line_of(run(folder, "-c", PRINTS_CONFIG, "--config=good.py", "--train.steps=3"))
    assert "'train.steps': a key of the config is set by --config.train.steps;" in line
    line = line_of(run(folder, "-c", PRINTS_CONFIG, "--config=good.py", "--train.stepz=3"))
    assert "is set by" not in line


def test_config_that_returns_nothing_is_told(folder):
    result = run(folder, "-m", "bert_jax.main", "--config=nothing.py", "--workdir=w")
    assert result.returncode == 2
    assert (
        result.stderr.splitlines()[-1] == "error: config file nothing.py: get_config() returns no ConfigDict"
    )


def test_help(folder):
    result = run(folder, "-m", "bert_jax.main", "--help")
    assert result.returncode == 0
    assert result.stderr == ""
    assert result.stdout.startswith("Trains a model")
    for flag in ("--config", "--workdir", "--mode", "--coordinator", "--distributed"):
        assert flag + ":" in result.stdout


def test_exit_codes(folder):
    assert line_of(run(folder, "-c", COMMAND, "open")) == "No such file or directory: /nowhere/text"
    assert line_of(run(folder, "-c", COMMAND, "config")) == "two lines"
    assert line_of(run(folder, "-c", COMMAND, "full")) == "No space left on device: /disk/file"
    assert run(folder, "-c", COMMAND, "fine").returncode == 0
    interrupted = run(folder, "-c", COMMAND, "interrupt")
    assert (interrupted.returncode, interrupted.stderr) == (130, "interrupted\n")


def test_a_reader_that_leaves_is_no_error(folder):
    env = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", COMMAND, "print"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdout.read(1) == b"x"
        started.stdout.close()
        assert started.stderr.read() == b""
    assert started.returncode == 141


def test_faults_of_the_program_keep_their_traceback(folder):
    result = run(folder, "-c", COMMAND, "fault")
    assert result.returncode == 1
    assert "Traceback" in result.stderr
    assert "invalid literal for int()" in result.stderr
