import logging

import pytest


@pytest.fixture
def lines():
    """What rewardcore tells people, line by line, as it is told."""
    told = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: told.append(record.getMessage())
    logging.getLogger("rewardcore").addHandler(handler)
    yield told
    logging.getLogger("rewardcore").removeHandler(handler)
