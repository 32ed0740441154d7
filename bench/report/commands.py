"""The commands that fill the page: sections name them where something is missing, and the last one lists them."""

BENCH = "tox -e bench"
VIRTUAL = "tox -e bench -- -k virtual"
STEPS = "tox -e bench -- -k step"
PROFILES = "tox -e bench -- -k profile"
PEERS = "tox -e bench -- -k 'peers or cold_start'"
MAIN_THREAD = "tox -e bench -- -k main_thread"
SOCKETS = "tox -e bench -- -k loopback"
REAL = "tox -e bench -- -k real_endpoint --base-url URL --model NAME"
SWEEP = "python -m bench.sweep --base-url URL --model NAME"
SELF = "tox -e bench-self"
HISTORY = "tox -e asv -- run HEAD~3..HEAD"
NIGHT = "python -m bench.nightly --device cuda"
GATE = "tox -e gate -- --base main --json .bench/gate.json"
REPORT = "tox -e report"

ABOUT = {
    BENCH: "every benchmark over HTTP; parts of it with -k virtual, step, profile, loopback, peers, main_thread",
    SELF: "the self mode, with torch: its speed and its memory by batch size",
    REAL: "the modes at an endpoint of yours, its cost told first",
    SWEEP: "which limit suits an endpoint of yours, beside auto",
    HISTORY: "the exact figures of several commits",
    GATE: "whether the working tree is slower or hungrier than main",
    NIGHT: "what needs a model, on a CPU or a GPU",
    REPORT: "this page, from whatever of these has run",
}
