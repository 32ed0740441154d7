"""What asv runs: `tox -e asv -- run HEAD~3..HEAD`. asv imports every module in here, in an environment without pytest.

The harness is this checkout's, the `rewardcore` that it measures is the one that asv has installed: the checkout itself
must not be on the path.
"""

import sys
from pathlib import Path

_ROOT = str(Path(__file__).resolve().parents[2])
sys.path.insert(0, _ROOT)
from bench.harness import check_measured, stand_apart  # noqa: E402  # the path comes first

sys.path[0] = str(stand_apart())
import rewardcore  # noqa: E402

check_measured(rewardcore.__file__)
