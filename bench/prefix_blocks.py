"""What an endpoint with a prefix cache could serve from it, in the order in which requests reach it. No IO.

Whole blocks of bytes, each known by all that stands before it, as vLLM keeps blocks of tokens; and room for so many
only, so that a group whose responses are sent far apart finds its prompt gone. Not a server's own figure: that is
`python -m bench.prefix_cache`.
"""

from __future__ import annotations

from collections import OrderedDict

BLOCK, ROOM = 64, 4096


class PrefixBlocks:
    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self.reset()

    def reset(self) -> None:
        self._known: OrderedDict[int, None] = OrderedDict()
        self._seen = self._found = 0

    @property
    def share(self) -> float | None:
        """Of the whole blocks that came, those that were known; None before the first."""
        return self._found / self._seen if self._seen else None

    def see(self, body: bytes) -> None:
        before = 0
        is_known = True
        for start in range(0, len(body) - BLOCK + 1, BLOCK):
            before = hash((before, body[start : start + BLOCK]))
            is_known = is_known and before in self._known
            self._seen += 1
            self._found += is_known
            self._known[before] = None
            self._known.move_to_end(before)
            if len(self._known) > self._room:
                self._known.popitem(last=False)
