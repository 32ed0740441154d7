"""The tiny judge model, made once a session where a test asks for it: only those environments have torch."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tiny_judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from fixtures.tiny_judge import make_tiny_judge

    return make_tiny_judge(tmp_path_factory.mktemp("tiny-judge"))
