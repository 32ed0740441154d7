"""`python -m rewardcore` is the `rewardcore` command."""

from .cli import main

main()
