"""Bad flags and configs: the table of what each command says of them. None of them is left a file."""

import pathlib

import bad_input
import pytest
from bad_input import Case

GOOD = "from bert_jax import config\n\n\ndef get_config():\n    c = config.default()\n    c.train.steps = 1\n"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("configs")
    (folder / "good.py").write_text(f"{GOOD}    return c\n")
    (folder / "lines.txt").write_text("a\n")
    return folder


def key(name: str, value: str, says: str, *more: str) -> Case:
    """A key of the config with a value that is refused."""
    words = ("main", "--config={w}/good.py", "--workdir=out", *(f"--config.{each}" for each in more))
    return Case(f"{name} = {value}", (*words, f"--config.{name}={value}"), says)


def file(name: str, content: str | bytes, says: str) -> Case:
    return Case(name, "main --config=c.py --workdir=out", says, {"c.py": content})


def flag(command: str, says: str) -> Case:
    return Case(command, command, says)


NEEDED = {
    "main": ("config", "workdir"),
    "prepare": ("config", "output"),
    "score": ("model", "input", "output"),
    "rerank": ("model",),
    "similarity": ("model", "input"),
    "pairs": ("model", "input"),
    "predict": ("model", "input", "output"),
    "convert": ("source", "target", "format"),
    "plan": ("config", "topology"),
    "visualize": ("model", "text", "output"),
    "bench": ("config",),
    "compare": ("text", "output"),
}
SOME = {"config": "{w}/good.py", "format": "hf", "topology": "v5e:4x4"}


def given(command: str, *others: str) -> str:
    """A command with all flags that it needs but some."""
    flags = (f"--{flag}={SOME.get(flag, 'x')}" for flag in NEEDED[command] if flag not in others)
    return " ".join((command, *flags))


FLAGS = [
    *(
        flag(given(command, needed), f"--{needed}=FILE is required" if needed == "config" else f"--{needed} is required")
        for command, all_needed in NEEDED.items()
        for needed in all_needed
    ),
    *(flag(f"{given(command)} --no_such_flag=1", "Unknown command line flag 'no_such_flag'") for command in NEEDED),
    *(flag(f"{given(command)} word", "unexpected argument word: write --FLAG=VALUE") for command in NEEDED),
    flag("report", "name at least one workdir"),
    flag("report x --no_such_flag=1", "Unknown command line flag 'no_such_flag'"),
    flag("report x", "x holds no run"),
    flag("report x --output y", "x holds no run"),
    flag(given("main") + " --mode=test", "--mode=test: value should be one of <train|eval>"),
    flag(given("main") + " --num_processes=0", "--num_processes=0: 0 is not a positive integer"),
    flag(given("main") + " --process_id=one", "--process_id=one"),
    flag(given("main") + " --num_processes=2", "--coordinator is missing"),
    flag(given("main") + " --coordinator=h:1 --num_processes=2 --process_id=2", "it must be less than --num_processes=2"),
    flag(given("main") + " --coordinator=h --num_processes=2 --process_id=1", "--coordinator=h: it must be HOST:PORT"),
    flag(given("main") + " --coordinator=:1 --num_processes=2 --process_id=1", "--coordinator=:1: it must be HOST:PORT"),
    flag(given("main") + " --mode=eval", "x holds no run to evaluate"),
    flag(given("main", "workdir") + " --workdir={w}/lines.txt", "--workdir={w}/lines.txt is a file"),
    flag(given("score") + " --method=mlm", "--method=mlm: value should be one of <auto|tta|pll|causal>"),
    flag(given("score") + " --batch_tokens=-1", "--batch_tokens=-1"),
    flag(given("score") + " --save_every=soon", "--save_every=soon"),
    flag(given("score") + " --ends=maybe", "--ends=maybe"),
    flag(given("score"), "--output" if False else "--input=x: there is no such file"),
    flag("score --model=x --input={w} --output=o", "--input={w}: there is no such file"),
    flag("score --model=x --input={w}/lines.txt --output={w}", "--output={w} is a directory: name a file"),
    flag("score --model=x --input={w}/lines.txt --output=no/o", "--output=no/o: its directory does not exist"),
    flag("score --model=x --input={w}/lines.txt --output=o", "x is no directory"),
    flag(f"score --model=x --input={'n' * 300} --output=o", "n: there is no such file"),
    flag(f"score --model={'n' * 300} --input={{w}}/lines.txt --output=o", "n is no directory"),
    flag("rerank --model=x", "there are no lists: name --dev, --input or both"),
    flag("rerank --model=x --input=y", "--weight is not known"),
    flag("rerank --model=x --dev=y --weight=0.5", "--weight is given and --dev too"),
    flag("rerank --model=x --dev=y --input=y", "--dev and --input are one file"),
    flag("rerank --model=x --dev=y --output=z", "--output has the lists of --input"),
    flag("rerank --model=x --dev=y", "--dev=y: there is no such file"),
    flag("rerank --model=x --input=y --weight=2", "--weight=2"),
    flag("rerank --model=x --dev=y --metric=ter", "--metric=ter: value should be one of <wer|bleu>"),
    flag("similarity --model=x --input=y", "--input=y: there is no such file"),
    flag("similarity --model=x --input=y --gold=", "without --gold there is nothing to say"),
    flag("pairs --model=x --input=y", "--input = 'y': there is no such file or directory"),
    flag("pairs --model=x --input=*.none", "--input = '*.none': no file matches"),
    flag("pairs --model=x --input={w}", "no file in it ends in .jsonl"),
    flag("predict --model=x --input=y --output=z", "--input=y: there is no such file"),
    flag(given("predict") + " --top_k=0", "--top_k=0"),
    flag(given("predict") + " --beam_size=65", "--beam_size=65"),
    flag(given("predict") + " --null_threshold=none", "--null_threshold=none"),
    flag(given("convert", "format") + " --format=onnx", "--format=onnx: value should be one of"),
    flag(given("convert", "format") + " --format=native --family=bert", "--family=bert is for --format=hf"),
    flag(given("convert") + " --family=gpt", "--family=gpt: value should be one of"),
    flag("convert --source=x --target=no/y --format=hf", "--target=no/y: its parent directory does not exist"),
    flag("convert --source=x --target={w} --format=hf", "{w} is there already"),
    flag("convert --source=x --target=y --format=hf", "x is no directory"),
    flag(given("plan", "topology") + " --topology=v9:2x2", "--topology=v9:2x2: it must be CHIP:SHAPE"),
    flag(given("plan", "topology") + " --topology=v5e", "--topology=v5e: it must be CHIP:SHAPE"),
    flag(given("visualize") + " --layer=-1", "--layer=-1"),
    flag("visualize --model=x --text=y --output=-", "--output=-: it cannot go to stdout"),
    flag("visualize --model=x --text=y --output={w}", "--output={w} is a directory"),
    flag("visualize --model=x --text=y --output=o.html --png=no/p", "--png=no/p: its directory does not exist"),
    flag("visualize --model=x --text=y --output=o.html", "x is no directory"),
    flag("visualize --model=x --text=y --output=model.json", "--output=model.json: its name must end with .html"),
    flag("visualize --model=x --text=y --output=o.html --png=p.html", "--png=p.html: its name must end with .png"),
    flag("score --model=x --input={w}/lines.txt --output={w}/lines.txt", "lines.txt is --input, which it would replace"),
    flag("predict --model=x --input={w}/lines.txt --output={w}/./lines.txt", "is --input, which it would replace"),
    flag("similarity --model=x --input={w}/lines.txt --output={w}/lines.txt", "is --input, which it would replace"),
    flag("pairs --model=x --input={w}/lines.txt --output={w}/lines.txt", "is --input, which it would replace"),
    flag("rerank --model=x --dev=y --input=z --references={w}/lines.txt --output={w}/lines.txt", "is --references, which it would replace"),
    flag("prepare --config={w}/good.py --config.task.name=cola --config.data.tokenizer=v --config.data.path=x --output=o",
         'task.name = "cola" reads its own data as it is'),
    flag("main --config=run/config.json:small --workdir=x", "a run's config.json takes no argument: write --config=run/config.json"),
    flag(given("bench") + " --what=speed", "--what=speed: value should be one of"),
    flag(given("bench") + " --what=finetune", "--what=finetune needs --workdir"),
    flag(given("bench") + " --what=scoring", "--what=scoring needs --input"),
    flag(given("bench") + " --what=scoring --input=y", "--input=y: there is no such file"),
    flag(given("bench") + " --what=input --peer=transformers", "--peer=transformers has no input pipeline"),
    flag(given("bench") + " --rounds=0", "--rounds=0"),
    flag(given("bench") + " --output=no/o", "--output=no/o: its directory does not exist"),
    flag(given("bench") + " --compiled", "--compiled is of the peers of --what=train"),
    flag(given("bench") + " --output=-", "--output=-: it cannot go to stdout"),
    flag(given("bench") + " --output={w}", "--output={w} is a directory"),
    flag(given("compare") + " --depths=deep", "--depths: 'deep': it must be a whole number from 1"),
    flag(given("compare") + " --variants=rnn", "rnn"),
    flag(given("compare") + " --variants=mlm,mlm", "mlm of 3 layers comes twice"),
    flag(given("compare") + " --reference=y", "--reference is of n-best lists"),
    flag(given("compare", "output") + " --output=gs://x/y", "--output=gs://x/y: it must be a local directory"),
    flag(given("compare") + " --stsb=y", "--stsb=y: there is no such file"),
    flag(given("compare") + " --blimp=y", "--blimp = 'y': there is no such file or directory"),
    flag(given("compare") + " --nbest=y", "--nbest=y: there is no such file"),
    flag("compare --text={w}/lines.txt --output={w}/lines.txt/x", "lines.txt"),
    flag(given("compare") + " --recipe=none.py", "none.py"),
    flag("prepare --config={w}/good.py --config.data.source=shards --config.data.path=x --output=o", 'is prepared text already'),
    flag("prepare --config={w}/good.py --config.data.source=text --config.data.mixture=(('x',1),('y',1)) --output=o", "shards are of one"),
    flag("prepare --config={w}/good.py --config.data.source=text --config.data.path=x --output=o", "data.path = 'x': there is no such file or directory"),
]  # fmt: skip

FILES = [
    flag("main --config=none.py --workdir=out", "config file none.py is not there"),
    flag("main --config={w} --workdir=out", "config file {w} is not there"),
    flag("main --config= --workdir=out", "--config=FILE is required"),
    flag("main --config.train.steps=1 --config={w}/good.py --workdir=out", "--config=FILE must come before"),
    file("an empty config", "", "config file c.py defines no get_config()"),
    file("a config that returns nothing", GOOD, "get_config() returns no ConfigDict"),
    file("a config that returns a dict", "def get_config():\n    return {}\n", "get_config() returns no ConfigDict"),
    file("a config with an open bracket", GOOD + "    return (c\n", "config file c.py, line 7: '(' was never closed"),
    file("a config that divides by 0", GOOD + "    return 1 / 0\n", "config file c.py, line 7: ZeroDivisionError"),
    file("a config with a typo", GOOD + "    c.train.step = 1\n    return c\n", "unknown config key train.step; did you mean train.steps?"),
    file("a config with a typo in a group", GOOD + "    c.trian.steps = 1\n    return c\n", "config file c.py, line 7"),
    file("a config of a wrong type", GOOD + "    c.train.steps = 'x'\n    return c\n", "config file c.py, line 7"),
    file("a config without its keys", "from ml_collections import ConfigDict\n\n\ndef get_config():\n    return ConfigDict()\n", "config lacks checkpoint.every: start it from bert_jax.config.default()"),
    file("a config that is not UTF-8", b"def get_config():\n    return '\xff'\n", "config file"),
    file("a config with a NUL", b"def get_config():\n\x00", "config file"),
    file("a config that imports nothing", "import no_such_module\n", "config file c.py, line 1: ModuleNotFoundError"),
    file("a config that recurses", "def get_config():\n    return get_config()\n", "RecursionError"),
]  # fmt: skip

KEYS = [
    key("train.stepz", "1", "unknown config key train.stepz; did you mean train.steps?"),
    key("steps", "1", "unknown config key steps; did you mean train.steps?"),
    key("train", "1", "config key train = '1'"),
    key("train.steps", "abc", "config key train.steps = 'abc': it must be a whole number"),
    key("train.steps", "1.5", "config key train.steps = '1.5': it must be a whole number"),
    key("train.steps", "", "config key train.steps = ''"),
    key("train.steps", "-1", "train.steps = -1: it must be at least 0"),
    key("train.steps", "0", "train.steps and train.epochs are both 0"),
    key("train.epochs", "nan", "train.epochs = nan: it must be a finite number"),
    key("train.epochs", "inf", "train.epochs = inf: it must be a finite number", "train.steps=0"),
    key("optimizer.learning_rate", "inf", "optimizer.learning_rate = inf: it must be a finite number"),
    key("optimizer.learning_rate", "-1e-4", "optimizer.learning_rate = -0.0001: it must be at least 0"),
    key("optimizer.b1", "1", "optimizer.b1 = 1.0: it must be between 0 and 0.999999"),
    key("optimizer.b1", "x", "config key optimizer.b1 = 'x': it must be a number"),
    key("optimizer.name", "sgd", "optimizer.name = 'sgd': it must be one of 'adamw', 'lamb'"),
    key("optimizer.schedule", "step", "optimizer.schedule = 'step': it must be one of"),
    key("optimizer.warmup_fraction", "2", "optimizer.warmup_fraction = 2.0: it must be between 0 and 1"),
    key("optimizer.warmup_fraction", "0.1", "are both set", "optimizer.warmup_steps=5"),
    key("optimizer.freeze_layers", "2", "init_from gives none"),
    key("optimizer.layer_decay", "0.5", "all layers have one layer's weights", "model.share_layers=True"),
    key("seed", "-1", "seed = -1: it must be between 0 and 2147483647"),
    key("seed", "99999999999", "seed = 99999999999: it must be between"),
    key("data.packing", "7", "config key data.packing = '7': it must be true or false"),
    key("data.lowercase", "maybe", "it must be true, false or None"),
    key("data.source", "csv", "data.source = 'csv': it must be one of"),
    key("data.source", "text", 'data.source = "text" needs data.path'),
    key("data.path", "x", "data.path = 'x' is not read with data.source = \"embedded\"", "data.source=embedded"),
    key("data.seq_len", "3", "data.seq_len = 3: it must be at least 4"),
    key("data.seq_len", "1024", "is longer than model.max_positions = 512"),
    key("data.buckets", "(16, 32)", "data.buckets is for fine-tuning"),
    key("data.buckets", "a", "data.buckets = ('a',): it must be a tuple of whole numbers"),
    key("data.buckets", "('a',)", "data.buckets = ('a',): it must be a tuple of whole numbers"),
    key("data.mixture", "(('a', 0),)", "each weight above 0"),
    key("data.mixture", "('a', 1)", "(path, weight) pairs"),
    key("data.mixture", "__import__('os')", "(path, weight) pairs"),
    key("data.eval_fraction", "1", "data.eval_fraction = 1.0: it must be between"),
    key("data.workers", "-1", "data.workers = -1"),
    key("data.vocab_size", "1", "data.vocab_size = 1: it must be at least 8"),
    key("model.hidden_size", "10", "is not a multiple of model.heads = 12"),
    key("model.heads", "0", "model.heads = 0: it must be at least 1"),
    key("model.layers", "1000000", "model.layers = 1000000: it must be between 1 and 10000"),
    key("model.kind", "gpt", "model.kind = 'gpt': it must be one of 'encoder', 'tta'"),
    key("model.kind", "tta", "has a mask of its own", "model.mask=causal"),
    key("model.position_offset", "2", "has none: set it to 0", "model.position=rotary"),
    key("model.local_window", "3", "model.local_window = 3: it must be even"),
    key("model.attention", "random", "has no queries and keys", "model.position=rotary"),
    key("model.dropout", "1", "model.dropout = 1.0: it must be between 0 and 0.999"),
    key("model.dtype", "float16", "model.dtype = 'float16': it must be one of"),
    key("model.first_norm", "false", 'is for model.norm = "pre"'),
    key("objective.mlm.rate", "0", "objective.mlm.rate = 0.0: it must be between"),
    key("objective.mlm.random_share", "0.5", "is more than 1"),
    key("objective.mlm.weight", "0", "objective"),
    key("objective.tta.weight", "1", "tta"),
    key("objective.causal.weight", "1", "causal"),
    key("objective.distill.weight", "1", "teacher"),
    key("train.batch_size", "0", "train.batch_size = 0: it must be at least 1"),
    key("train.batch_size", "7", "is not a multiple of train.accumulation = 2", "train.accumulation=2"),
    key("train.patience", "2", "counts evaluations"),
    key("train.phases", "((128, 0),)", "(seq_len, steps) or (seq_len, steps, batch_size), all above 0"),
    key("train.profile", "(-2, 5)", "train.profile = (-2, 5): it must be (from, to)"),
    key("train.profile", "(5, 5)", "train.profile = (5, 5): it must be (from, to)"),
    key("mesh.data", "0", "mesh.data = 0: it must be -1"),
    key("mesh.fsdp", "0", "mesh.fsdp = 0: it must be at least 1"),
    key("checkpoint.every", "0", "checkpoint.every = 0: it must be at least 1"),
    key("sweep.learning_rate", "(1e-3, 1e-3)", "each value must be named once"),
    key("sweep.learning_rate", "(0.0,)", "numbers above 0"),
    key("sweep.epochs", "(1, 2)", "cannot go with train.steps"),
    key("sweep.seeds", "3000000000", "must be below"),
    key("task.name", "squad3", "task.name = 'squad3': it must be one of"),
    key("task.mixout", "0.5", "is of a task that starts from a model"),
    key("task.name", "cola", "data.path"),
    key("task.name", "cola", "is for pretraining: leave it empty", "data.path=x", "objective.distill.teacher=y"),
    key("task.l2", "0.1", "task.l2 = 0.1 is of a fine-tuning task, and task.name is empty"),
    key("task.pooling", "mean", "task.pooling = 'mean' is of a fine-tuning task"),
    key("data.extend_vocab", "9", "keeps the embeddings as they are", "init_from=x", "optimizer.freeze_layers=0"),
    key("data.eval_fraction", "0", "a run needs text to be evaluated on"),
    key("task.beam_size", "100", "task.beam_size = 100: it must be between 1 and 64"),
]  # fmt: skip

TABLE = [*FLAGS, *FILES, *KEYS]


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.name[:60])
def test_a_bad_command_is_refused_in_one_line(
    case: Case, world: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    bad_input.refused(case, world, tmp_path)
