#!/usr/bin/env python3
"""Stands in for llama-server: the same flags, paths and fields, answers by a rule.

It appends a line to the file that FAKE_LLAMA_LOG names for every start, prompt and end.
"""

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

HELP = """--spec-type none,draft-simple,draft-mtp,ngram-simple,ngram-mod
                                        comma-separated list of types
"""
MS = {"on": 4.0, "off": 5.0}


def value(flag, default=None):
    return sys.argv[sys.argv.index(flag) + 1] if flag in sys.argv else default


def log(kind, **what):
    line = {"kind": kind, "pid": os.getpid(), "spec": value("--spec-type"), **what}
    with open(os.environ["FAKE_LLAMA_LOG"], "a") as file:
        print(json.dumps(line), file=file)


def dies_now():
    """True in the second process that speculates, if that is the fault: so in the second round."""
    if os.environ.get("FAKE_LLAMA_FAULT") != "dies in round 2" or value("--spec-type") is None:
        return False
    with open(os.environ["FAKE_LLAMA_LOG"]) as file:
        lines = [json.loads(line) for line in file]
    starts = [line for line in lines if line["kind"] == "start"]
    return [line["spec"] for line in starts].count(value("--spec-type")) == 2


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply(200 if self.path == "/health" else 404, {})

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        log("prompt", ids=asked["prompt"], asked=asked)
        if os.environ.get("FAKE_LLAMA_FAULT") == "dies" or dies_now():
            print("out of luck", file=sys.stderr, flush=True)
            os._exit(3)
        tokens = [(asked["prompt"][-1] + i) % 100 for i in range(asked["n_predict"])]
        accepted = len(tokens) // 2 if value("--spec-type") else 0
        step = MS[value("--flash-attn")]
        cached = int(os.environ.get("FAKE_LLAMA_FAULT") == "caches")
        timings = {
            "cache_n": cached,
            "prompt_n": len(asked["prompt"]) - cached,
            "prompt_ms": 2.0 * len(asked["prompt"]),
            "predicted_n": len(tokens),
            "predicted_ms": step * (len(tokens) - 1 - accepted) or 0.001,
        }
        if accepted:
            timings |= {"draft_n": 2 * accepted, "draft_n_accepted": accepted}
        self.reply(200, {"tokens": tokens, "timings": timings})

    def reply(self, status, content):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def end(*_):
    log("end")
    sys.exit(0)


def main():
    if "--version" in sys.argv:
        print("version: 1 (fake)", file=sys.stderr)
    elif "--help" in sys.argv:
        print(HELP)
    else:
        signal.signal(signal.SIGTERM, end)
        log("start", flags=sys.argv[1:])
        fault = os.environ.get("FAKE_LLAMA_FAULT")
        print("loading a model", file=sys.stderr, flush=True)
        if fault == "never":
            time.sleep(60)
        if fault == "ends":
            print("cannot read the model", file=sys.stderr, flush=True)
            sys.exit(1)
        HTTPServer(("127.0.0.1", int(value("--port"))), Handler).serve_forever()


main()
