"""What `rewardcore.rejection` gives, and what it does not bring along."""

import subprocess
import sys

import pytest

from rewardcore import rejection


def test_the_exported_names_are_sorted_and_say_what_they_are():
    assert rejection.__all__ == sorted(rejection.__all__)
    assert all(getattr(rejection, name).__doc__ for name in rejection.__all__)


@pytest.mark.parametrize("heavy", ["aiohttp", "matplotlib", "PIL", "datasets", "pyarrow", "vllm", "numpy"])
def test_importing_it_imports_nothing_that_is_only_sometimes_needed(heavy):
    code = f"import sys, rewardcore.rejection; print({heavy!r} in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
