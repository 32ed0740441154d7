"""A page with every section filled, made by the command itself; and a browser without a window to open it in."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from bench.harness import ROOT
from tests.bench.report_sources import write_all

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: For a user who may be root, on a machine without a GPU; and nothing that the browser does on its own.
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
TITLE = "A title"


def report(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.report", "--title", TITLE, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with index.html and picture.png."""
    directory = tmp_path_factory.mktemp("report") / "made"  # which is not there yet
    files = write_all(tmp_path_factory.mktemp("sources"))
    written = ("--output", directory / "index.html", "--picture", directory / "picture.png")
    done = report(*files.flags, *written)
    assert done.returncode == 0, done.stderr
    return directory


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    service = shutil.which("chromedriver")
    if browser is None or service is None:
        pytest.fail("the page is tested in a browser, and there is none: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=Service(service))
    yield chrome
    chrome.quit()
