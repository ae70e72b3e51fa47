"""Every command and every block of Python in docs/ runs, on small models and made data.

A page is read as its reader would: the blocks in order, in one folder that has a copy of the repository's
`bert_jax` and `configs` and, under the names that the page uses, some made data. What a fence says of its
block:

    sh            bash runs it; recipes are cut to a few steps (`docs_server.TINY`), all else is as written
    python        it is executed; the blocks of a page share their names
    python FILE   it is written into FILE
    diff          `git apply` applies it to the copy of the repository
    text          what a command printed, to be read
    ... no-test   it needs what a test has not; NOT_RUN counts these, so that none is hidden
"""

import dataclasses
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import docs_data
import docs_server
import pytest
from absl import flags as absl_flags
from ml_collections import config_flags

from bert_jax import config as config_lib

ROOT = pathlib.Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
KINDS = ("sh", "python", "diff", "text")
# Blocks of each page that no test runs: TensorBoard serves until it is stopped.
NOT_RUN = {"README": 0, "checkpoints": 0, "compare": 0, "extend": 0, "finetune": 0, "pretrain": 1, "tta": 0}
# What a page's commands must have left behind.
LEFT = {
    "checkpoints": ("mine/model.safetensors", "for_transformers/config.json", "domain_model/README.md"),
    "extend": ("runs/fasttext/predictions/eval.jsonl", "back/model.json"),
    "finetune": (
        "runs/topic/report.html",
        "answers.jsonl",
        "judged.jsonl",
        "found.jsonl",
        "written.jsonl",
        "corrected.jsonl",
    ),
    "pretrain": ("runs/mine/report.html", "runs/phases/result.json", "both.html"),
    "tta": ("scores.jsonl", "chosen.jsonl", "alike.jsonl"),
}
SHIM = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({path!r})
    asked = {{"words": sys.argv[1:], "cwd": os.getcwd(), "env": {{"PATH": os.environ["PATH"]}}}}
    socket.send_fds(server, [json.dumps(asked).encode()], [0, 1, 2])
    sys.exit(int(server.recv(16) or b"70"))
"""


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: its kind, the rest of its info string, the number of its line, its text."""

    kind: str
    rest: str
    line: int
    text: str


def blocks(page: pathlib.Path) -> list[Block]:
    found = []
    text = page.read_text()
    for match in re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        kind, _, rest = match[1].partition(" ")
        found.append(Block(kind, rest, text[: match.start()].count("\n") + 1, match[2]))
    assert 2 * len(found) == len(re.findall("^```", text, re.MULTILINE)), f"{page}: a fence is not closed"
    return found


def _page(name: str) -> pathlib.Path:
    return ROOT / "docs" / f"{name}.md"


@pytest.fixture(scope="session")
def commands() -> Iterator[dict[str, str]]:
    """The environment in which `python` is the server's."""
    with tempfile.TemporaryDirectory(prefix="bj") as short:  # a socket's path may have 108 letters
        folder = pathlib.Path(short)
        env = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
            "BERT_JAX_CACHE": str(folder / "cache"),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        process = subprocess.Popen([sys.executable, docs_server.__file__, str(folder / "s")], env=env)
        shim = folder / "bin" / "python"
        shim.parent.mkdir()
        shim.write_text(SHIM.format(python=sys.executable, path=str(folder / "s")))
        shim.chmod(0o755)
        while not (folder / "s").exists():
            assert process.poll() is None
            time.sleep(0.1)
        yield {**env, "PATH": f"{shim.parent}:{env['PATH']}"}
        process.kill()
        process.wait()


def play(page: str, folder: pathlib.Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Does what a page says, in a folder."""
    for name in ("bert_jax", "configs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    docs_data.make(page, folder)
    monkeypatch.chdir(folder)
    names: dict[str, object] = {"__name__": page}
    failures = []
    for block in blocks(_page(page)):
        where = f"docs/{page}.md, line {block.line}"
        if block.rest == "no-test" or block.kind == "text":
            continue
        if block.kind == "python" and block.rest:
            (folder / block.rest).write_text(block.text)
        elif block.kind == "python":
            exec(compile(block.text, where, "exec"), names)
        else:
            words = ["bash", "-euo", "pipefail", "-c", block.text]
            if block.kind == "diff":
                words = ["git", "apply", "-"]
            done = subprocess.run(
                words, cwd=folder, env=env, input=block.text, capture_output=True, text=True, timeout=3600
            )
            said = f"{where}:\n{block.text}\n{done.stdout}\n{done.stderr}"
            print(said)
            if done.returncode:
                failures.append(said)
    assert not failures, "\n".join(failures)
    for name in LEFT[page]:
        assert (folder / name).stat().st_size, name
    for result in folder.glob("runs/**/result.json"):
        assert math.isfinite(json.loads(result.read_text())["value"]), result


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_changes_that_pages_make_fit_the_code(page, tmp_path):
    """A hunk that lands in another function than it was written for leaves a name that nothing defines."""
    shutil.copytree(ROOT / "bert_jax", tmp_path / "bert_jax", ignore=shutil.ignore_patterns("__pycache__"))
    for block in blocks(page):
        if block.kind == "diff":
            subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=block.text, text=True, check=True)
        elif block.kind == "python" and block.rest.endswith(".py"):
            (tmp_path / block.rest).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.rest).write_text(block.text)
    subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F", "."], cwd=tmp_path, check=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({*LEFT} - {"checkpoints"}))
def test_page(page, tmp_path, commands, monkeypatch):
    play(page, tmp_path, commands, monkeypatch)


def test_page_of_checkpoints(tmp_path, commands, monkeypatch):
    play("checkpoints", tmp_path, commands, monkeypatch)


def test_blocks_that_no_test_runs_are_counted():
    found = {page.stem: [b for b in blocks(page) if b.rest == "no-test"] for page in DOCS}
    assert {name: len(some) for name, some in found.items() if name in NOT_RUN} == NOT_RUN


def test_pages_are_all_known():
    assert {page.stem for page in DOCS} - {"tpu"} == {*NOT_RUN}
    assert {name for name, page in zip(NOT_RUN, map(_page, NOT_RUN), strict=True) if blocks(page)} == {*LEFT}
    for page in map(_page, NOT_RUN):
        for block in blocks(page):
            assert block.kind in KINDS, f"{page}, line {block.line}: a block of the kind {block.kind!r}"


def test_changes_that_a_page_shows_apply_to_the_code():
    for page in DOCS:
        changes = "".join(block.text for block in blocks(page) if block.kind == "diff")
        if changes:
            words = ["git", "apply", "--check", "-C1", "-"]
            done = subprocess.run(words, cwd=ROOT, input=changes, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr


def recipes() -> list[tuple[str, list[str]]]:
    """Where each command of the pages with a config stands, and its --config flags."""
    found = []
    for page in map(_page, NOT_RUN):
        for block in blocks(page):
            lines = block.text.replace("\\\n", " ").splitlines() if block.kind == "sh" else ()
            for words in map(shlex.split, lines):
                flags = [word for word in words if word.startswith("--config")]
                # A page that extends the package has keys which only its copy of the package knows, and the
                # config of a run is there when the page is played.
                if flags and page.stem != "extend" and not flags[0].endswith(".json"):
                    found.append((f"{page.name}, line {block.line}: {' '.join(words)}", flags))
    return found


@pytest.mark.filterwarnings("ignore:the load_module")  # ml_collections', of a config file
@pytest.mark.parametrize("tiny", [False, True], ids=["as_written", "as_tested"])
def test_recipes_are_valid(tiny, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(ROOT)
    found = recipes()
    assert found
    for where, given in found:
        flags = docs_server.shrunk(["-m", "bert_jax.main", *given])[2:] if tiny else given
        monkeypatch.setattr(sys, "argv", ["command", *flags])  # where ml_collections looks for keys
        values = absl_flags.FlagValues()
        config_flags.DEFINE_config_file("config", lock_config=True, flag_values=values)
        try:
            values(sys.argv)
            config_lib.validate(values["config"].value)
        except (absl_flags.Error, ValueError, KeyError) as error:
            pytest.fail(f"{where}: {error}")


@pytest.mark.parametrize("page", [*DOCS, ROOT / "README.md"], ids=lambda page: page.stem)
def test_what_a_page_names_is_there(page):
    text = page.read_text()
    flat = {*config_lib.flatten(config_lib.default()), *re.findall(r"^\+    c\.([a-z_.]+) = ", text, re.M)}
    for key in re.findall(r"--config\.([a-z_.0-9]+)=", text):
        assert key in flat, key
    groups = "task|model|objective|data|train|optimizer|mesh|checkpoint|sweep"
    for key in re.findall(rf"`((?:{groups})\.(?!json|safetensors)[a-z_.0-9]+)[`=]", text):
        assert key in flat or any(name.startswith(f"{key}.") for name in flat), key
    for file in re.findall(r"\b((?:configs|bert_jax|launch|tests|docs)/[\w/]+\.\w+)", text):
        assert (ROOT / file).exists() or file in (block.rest for block in blocks(page)), file
    for module in re.findall(r"python -m (bert_jax\.\w+)", text):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), link
