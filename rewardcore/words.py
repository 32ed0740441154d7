"""Words of others on their way to people: an endpoint's, a row's, a file's. Cut, since they may be of any length, and
escaped, since a terminal obeys control characters. Not for what is kept or sent, which stays as it was.
"""

from __future__ import annotations

import re

#: So much of an error's words is kept, before anything else looks at them.
LONGEST = 2_000
#: Control characters but for tab and newline, what turns the direction of writing or ends a line, half surrogate pairs.
_UNPRINTABLE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def cut(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def printable(text: object) -> str:
    r"""Each such character as JSON writes it, `\u001b`: so a JSON document stays one."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", str(text))


def one_line(text: str, longest: int) -> str:
    return cut(" ".join(cut(text.strip(), max(longest, LONGEST)).split()), longest)
