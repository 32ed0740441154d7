"""A judge to try things on: a simulated OpenAI-compatible endpoint, on 127.0.0.1, in a process of its own.

`latency`, `replies` and `script` decide without IO how fast it answers and what; `connection` speaks HTTP, `server` is
the process, `server_process` starts and stops it. Anybody above may call in, and a user's own tests, for which pytest
has the fixture `judge_server`.
"""

from .latency import Profile
from .server_process import SimulatedServer

__all__ = ["Profile", "SimulatedServer"]
