"""A judge to try things on: a simulated OpenAI-compatible endpoint, on 127.0.0.1, in a process of its own.

`latency` and `replies` decide without IO how fast it answers and what; `server` is the process, `server_process`
starts and stops it. Anybody above may call in, and a user's own tests.
"""

from .latency import Profile
from .server_process import SimulatedServer

__all__ = ["Profile", "SimulatedServer"]
