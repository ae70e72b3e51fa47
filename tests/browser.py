"""A headless Chromium, for the tests of pages."""

import os
import pathlib
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def _needs(found: Any, reason: str) -> None:
    if found is None:
        if os.environ.get("BERT_JAX_REQUIRE_BROWSER") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


@contextmanager
def opened(page: pathlib.Path, width: int = 1200, height: int = 900) -> Iterator[Any]:
    """Opens a file in a window of that size; the driver's log of the page must stay empty of errors."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    _needs(chromium, "no browser: install the system's packages chromium and chromium-driver")
    driver_path = shutil.which("chromedriver")
    _needs(driver_path, "no chromedriver: install the system's package chromium-driver")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, not ours
        pytest.importorskip("selenium", reason="selenium is not installed: bash launch/test.sh")
        from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--disable-quic", "--disable-dev-shm-usage",
    ):  # fmt: skip
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_path))
    try:
        driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        driver.get(page.as_uri())
        yield driver
        errors = [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
        assert errors == [], errors
    finally:
        driver.quit()


def wait(driver: Any, script: str, seconds: float = 20.0) -> Any:
    """Returns what a script gives as soon as it is no longer false."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(driver, seconds).until(lambda d: d.execute_script(f"return {script}"))
