"""A program in vLLM's place: takes its command line, and behaves as the flags after it say."""

import argparse
import http.server
import os
import signal
import subprocess
import sys
import threading

FOREVER = "import time\nwhile True: time.sleep(1)"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/die":
            print("RuntimeError: CUDA error: an illegal memory access was encountered", flush=True)
            os._exit(7)
        self.send_response(503 if OPTIONS.sick else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def start_children() -> list[int]:
    """One like vLLM's engine, one that leaves the group, an orphan that leaves the session: all deaf to SIGTERM."""
    deaf = f"'deaf child of fake_vllm'; import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {FOREVER}"
    engine = subprocess.Popen([sys.executable, "-c", deaf])
    loner = subprocess.Popen([sys.executable, "-c", deaf], process_group=0)
    code = f"""if True:
        import subprocess, sys
        orphan = subprocess.Popen([sys.executable, "-c", {deaf!r}], start_new_session=True, stdout=subprocess.DEVNULL)
        print(orphan.pid)
    """
    orphan = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    return [engine.pid, loner.pid, int(orphan.stdout)]


parser = argparse.ArgumentParser()
for name in ("--model", "--served-model-name", "--host"):
    parser.add_argument(name, required=True)
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--pids", help="where to write the pids of all processes")
parser.add_argument("--say", default="INFO loading")
parser.add_argument("--die", type=int, help="exit code")
parser.add_argument("--sick", action="store_true", help="answer, but never be healthy")
parser.add_argument("--silent", action="store_true", help="never listen")
parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM")
parser.add_argument("--children", action="store_true")
OPTIONS = parser.parse_args()

if OPTIONS.stubborn:
    signal.signal(signal.SIGTERM, lambda *_: print("SIGTERM? no", flush=True))
pids = [os.getpid(), *(start_children() if OPTIONS.children else [])]
if OPTIONS.pids:
    with open(OPTIONS.pids + ".part", "w") as file:
        file.write(" ".join(map(str, pids)))
    os.rename(OPTIONS.pids + ".part", OPTIONS.pids)
print(OPTIONS.say, flush=True)
print("key", os.environ.get("VLLM_TRIAL"), "rank", os.environ.get("RANK"), flush=True)
if OPTIONS.die is not None:
    sys.exit(OPTIONS.die)
if OPTIONS.silent:
    threading.Event().wait()
http.server.HTTPServer((OPTIONS.host, OPTIONS.port), Handler).serve_forever()
