"""A program in vLLM's place: takes its command line, and behaves as the flags after it say."""

import argparse
import http.server
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time

FOREVER = "import time\nwhile True: time.sleep(1)"


class Handler(http.server.BaseHTTPRequestHandler):
    asked = itertools.count(1)

    def do_POST(self) -> None:
        """A chat completion, whatever was asked."""
        self.rfile.read(int(self.headers["Content-Length"]))
        if next(self.asked) == OPTIONS.dies_at:
            print("RuntimeError: CUDA error: an illegal memory access was encountered", flush=True)
            os._exit(7)
        time.sleep(OPTIONS.reply_seconds)
        message = {"role": "assistant", "content": OPTIONS.reply}
        body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

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
parser.add_argument("--dies-for", help="the name of a model that it cannot serve")
parser.add_argument("--sick", action="store_true", help="answer, but never be healthy")
parser.add_argument("--silent", action="store_true", help="never listen")
parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM")
parser.add_argument("--children", action="store_true")
parser.add_argument("--reply", default="<answer>2</answer>", help="to everything that is asked")
parser.add_argument("--reply-seconds", type=float, default=0.0)
parser.add_argument("--dies-at", type=int, help="the request that it dies of")
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
if OPTIONS.dies_for == OPTIONS.served_model_name:
    sys.exit(3)
if OPTIONS.die is not None:
    sys.exit(OPTIONS.die)
if OPTIONS.silent:
    threading.Event().wait()
http.server.ThreadingHTTPServer((OPTIONS.host, OPTIONS.port), Handler).serve_forever()
