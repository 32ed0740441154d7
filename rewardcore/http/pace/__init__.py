"""How fast to ask: a few named states, one table of the ways between them, and a reader for each kind of sign.

`machine.py` has the pace itself; `states.py` what each state allows, and the table; `refusals.py` what a failure means
(a limit, an outage, or chance); `quota.py` what headers mean; `knee.py` what latency means, for "auto" alone;
`patience.py` how long one attempt may take. Pure logic, told of every departure and outcome, without a clock.
"""

from .machine import AUTO_CEILING, Pace
from .patience import Patience

__all__ = ["AUTO_CEILING", "Pace", "Patience"]
