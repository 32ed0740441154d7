"""Two GPUs of 8 GiB, for any test that names the fixture `cuda`."""

from collections.abc import Iterator

import pytest

from tests.cuda.devices import Cuda
from tests.cuda.fake import fake_cuda


@pytest.fixture
def cuda() -> Iterator[Cuda]:
    with fake_cuda(devices=2) as cuda:
        yield cuda
