"""What could grow without a bound, or be written by two at a time, is refused."""

import gzip
import pathlib
import resource

import jax
import jax.numpy as jnp
import pytest
from etils import epath

from bert_jax import config as config_lib
from bert_jax import workdir
from bert_jax.checkpoint import Checkpoints
from bert_jax.checkpoint_record import CheckpointError
from bert_jax.data import files


def test_a_line_without_an_end_is_refused(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST_LINE", 1 << 20)
    bomb = tmp_path / "bomb.txt.gz"
    bomb.write_bytes(gzip.compress(b"a\n" + bytes(50 << 20)))
    lines = files.lines(epath.Path(bomb))
    assert next(lines) == (1, "a")
    with pytest.raises(files.CorpusError, match=r"bomb\.txt\.gz, line 2: longer than 1048576 bytes"):
        next(lines)
    # As long as is allowed, and the next one.
    text = tmp_path / "text.txt"
    text.write_text(f"{'b' * (1 << 20)}\nc")
    assert [(number, len(line)) for number, line in files.lines(epath.Path(text))] == [(1, 1 << 20), (2, 1)]


def test_a_large_file_is_not_read_whole(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_FILE", 1000)
    file = tmp_path / "squad.json.gz"
    file.write_bytes(gzip.compress(b" " * 1000))
    assert files.whole(epath.Path(file)) == " " * 1000
    file.write_bytes(gzip.compress(b" " * 1001))
    with pytest.raises(files.CorpusError, match="more than 1000 bytes"):
        files.whole(epath.Path(file))


def test_one_process_at_a_time_trains_in_a_workdir(tmp_path: pathlib.Path) -> None:
    root = tmp_path / "run"
    with workdir.alone(root):
        with (
            pytest.raises(config_lib.ConfigError, match=r"another process trains in .*run: wait for it"),
            workdir.alone(root),
        ):
            pass
        with workdir.alone(tmp_path / "other"):
            pass
    with workdir.alone(root):
        pass


def test_a_reader_leaves_what_is_being_saved(tmp_path: pathlib.Path) -> None:
    unfinished = tmp_path / "7.orbax-checkpoint-tmp"
    unfinished.mkdir()
    for saves, kept in ((False, True), (True, False)):
        checkpoints = Checkpoints(tmp_path, keep=1, best_mode=None, saves=saves)
        checkpoints.save(int(saves), {"x": jnp.ones(2)})  # done after what is to go has gone
        checkpoints.close()
        assert unfinished.exists() == kept


def test_a_save_that_finds_no_room_is_told(tmp_path: pathlib.Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2, best_mode=None)
    checkpoints.save(1, {"x": jnp.ones(2)})
    checkpoints.wait()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        checkpoints.save(2, {"x": jnp.ones(100_000)})
        with pytest.raises(
            CheckpointError, match=r"could not be saved in .*File too large.*start the same command again"
        ):
            checkpoints.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    checkpoints.close()
    again = Checkpoints(tmp_path, keep=2, best_mode=None)
    place = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    step, state = again.restore({"x": jax.ShapeDtypeStruct((2,), jnp.float32, sharding=place)})
    again.close()
    assert (step, state["x"].tolist()) == (1, [1, 1])
