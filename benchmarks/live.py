"""
Measures `tempoformer serve` under load.

Two workers share a Redis server. 64 clients write the posts of 2,000 timelines, each timeline's posts in order. Some
posts are sent twice, and some come late. Halfway one worker is killed (SIGKILL) and another one takes its port. A
client sends a post until it gets an answer. Finally the answers are compared with the pipeline's.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import redis
import torch
from workload import MODEL_TYPES, POST_TOKENS, ROOT, WINDOW, draw, make_pipe, show

from tempoformer_live.redis_store import MEMORY


# One post in this many is sent twice, and one in this many is followed by a late post.
SENT_TWICE = LATE = 50
COMPARED_TIMELINES = 200
NO_ANSWER = (OSError, http.client.HTTPException)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def make_timelines(tokenizer, num_timelines: int, num_posts: int) -> dict[str, dict[str, list]]:
    """Makes posts of random words, with a real distribution of lengths, a second to a month apart."""
    words = sorted(word for word in tokenizer.get_vocab() if word.isalpha())
    choose, generator = random.Random(0), torch.Generator().manual_seed(0)
    lengths = iter(draw(POST_TOKENS, num_timelines * num_posts, generator))
    timelines = {}
    for number in range(num_timelines):
        seconds, times = 1.7e9, []
        for _ in range(num_posts):
            seconds += float(round(choose.lognormvariate(8, 2)) + 1)
            times.append(seconds)
        texts = [" ".join(choose.choices(words, k=max(1, next(lengths) - 2))) for _ in range(num_posts)]
        timelines[f"timeline {number}"] = {"text": texts, "timestamp": times}
    return timelines


class Workers:
    """Processes of `tempoformer serve`, one on each port."""

    def __init__(self, model: Path, redis_url: str, count: int, folder: Path):
        server = [sys.executable, str(ROOT / "tempoformer.py"), "serve"]
        self.command = [*server, "--model", str(model), "--redis", redis_url]
        self.ports = [free_port() for _ in range(count)]
        self.log = (folder / "workers.txt").open("w")
        self.processes = [self.start(port) for port in self.ports]

    def start(self, port: int) -> subprocess.Popen:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [*self.command, "--port", str(port)]
        return subprocess.Popen(command, env=environment, stdout=self.log, stderr=subprocess.STDOUT)

    def wait(self):
        for port, process in zip(self.ports, self.processes, strict=True):
            while True:
                if process.poll() is not None:
                    raise SystemExit(f"A worker has ended: see {self.log.name}.")
                try:
                    if Client([port]).ask(0, "GET", "/ready")[0] == 200:
                        break
                except NO_ANSWER:
                    pass
                time.sleep(0.2)

    def kill_and_replace(self):
        self.processes[0].send_signal(signal.SIGKILL)
        self.processes[0].wait()
        self.processes[0] = self.start(self.ports[0])

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


class Client:
    """Sends each post until it gets an answer, over a connection to each worker."""

    def __init__(self, ports: list[int], seed: int = 0):
        self.connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=120) for port in ports]
        self.choose, self.turn = random.Random(seed), seed
        self.seconds: list[float] = []
        self.counts: Counter = Counter()

    def ask(self, worker: int, method: str, path: str, body=None) -> tuple[int, str]:
        connection = self.connections[worker % len(self.connections)]
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        except NO_ANSWER:
            connection.close()
            raise

    def score(self, post: dict) -> tuple[int, dict]:
        """Returns status and answer of a post, from any worker."""
        while True:
            self.turn += 1
            try:
                status, answer = self.ask(self.turn, "POST", "/score", post)
            except NO_ANSWER as problem:
                # The worker is away or has died, perhaps after it read the post. The other one is next.
                if not isinstance(problem, ConnectionRefusedError):
                    self.counts["sent again as the connection broke"] += 1
                continue
            if status != 503:
                return status, json.loads(answer)
            self.counts["sent again, too many were waiting"] += 1
            time.sleep(self.choose.uniform(0.5, 1.5))

    def write(self, timelines: dict[str, dict], done: threading.Semaphore) -> dict[str, list[dict]]:
        """Writes timelines, a post of each in turn, and returns their answers."""
        answers: dict[str, list[dict]] = {name: [] for name in timelines}
        for number in range(len(next(iter(timelines.values()))["text"])):
            for name, timeline in timelines.items():
                post = {"timeline_id": name, "post_id": str(number)}
                post |= {"text": timeline["text"][number], "timestamp": timeline["timestamp"][number]}
                start = time.perf_counter()
                status, answer = self.score(post)
                self.seconds.append(time.perf_counter() - start)
                assert status == 200, (status, answer)
                answers[name].append(answer)
                done.release()
                if self.choose.randrange(SENT_TWICE) == 0:
                    assert self.score(post) == (200, answer), "A post that was sent again got another answer."
                    self.counts["sent twice, same answer"] += 1
                if self.choose.randrange(LATE) == 0:
                    late = {**post, "post_id": f"late {number}", "timestamp": post["timestamp"] - 1}
                    assert self.score(late)[0] == 409, "A late post was read."
                    self.counts["late, refused"] += 1
        return answers


def load_test(pipe, timelines: dict[str, dict], model: Path, client: redis.Redis, url: str, num_clients: int) -> dict:
    """Writes all posts, and returns the figures."""
    workers = Workers(model, url, 2, model.parent)
    try:
        workers.wait()
        total, done = sum(len(timeline["text"]) for timeline in timelines.values()), threading.Semaphore(0)
        clients = [Client(workers.ports, seed) for seed in range(num_clients)]
        names = list(timelines)
        start = time.perf_counter()
        with ThreadPoolExecutor(num_clients) as pool:
            writing = [
                pool.submit(writer.write, {name: timelines[name] for name in names[number::num_clients]}, done)
                for number, writer in enumerate(clients)
            ]
            for _ in range(total // 2):
                while not done.acquire(timeout=1):
                    for future in writing:
                        if future.done():
                            future.result()
            workers.kill_and_replace()
            answers = {name: results for future in writing for name, results in future.result().items()}
        seconds = time.perf_counter() - start
    finally:
        workers.stop()
    lost = sum(
        answer["stream_length"] != min(number, WINDOW)
        for results in answers.values()
        for number, answer in enumerate(results, 1)
    )
    compared = names[:COMPARED_TIMELINES]
    largest = max(
        abs(answer["score"] - result["score"])
        for name, results in zip(compared, pipe([timelines[name] for name in compared]), strict=True)
        for answer, result in zip(answers[name], results, strict=True)
    )
    latencies = sorted(latency for writer in clients for latency in writer.seconds)
    counts = sum((writer.counts for writer in clients), Counter())
    return {
        "posts": total,
        "posts a second": total / seconds,
        "p50, ms": 1000 * statistics.median(latencies),
        "p99, ms": 1000 * latencies[int(0.99 * len(latencies))],
        "longest, ms": 1000 * latencies[-1],
        **{name: counts[name] for name in sorted(counts)},
        "streams of another length than the pipeline's": lost,
        f"largest difference of a score from the pipeline's, {len(compared)} timelines": largest,
        "timelines in Redis": (num_timelines := len(client.keys(f"{MEMORY}*"))),
        "bytes of Redis a timeline": client.info("memory")["used_memory"] / max(1, num_timelines),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", help="folder or Hub id; by default a tiny untrained encoder")
    parser.add_argument("--model_type", choices=list(MODEL_TYPES), default="post_tempoformer")
    parser.add_argument("--timelines", type=int, default=2000)
    parser.add_argument("--posts", type=int, default=5, help="posts of each timeline")
    parser.add_argument("--clients", type=int, default=64)
    args = parser.parse_args()
    if shutil.which("redis-server") is None:
        raise SystemExit("There is no redis-server: `make .venv/redis` installs it.")
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        command = ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--dir", folder]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            url = f"redis://127.0.0.1:{port}/0"
            client = redis.Redis.from_url(url, retry=redis.retry.Retry(redis.backoff.ConstantBackoff(0.1), 100))
            client.ping()
            pipe = make_pipe(args.model_type, args.encoder)
            pipe.save_pretrained(f"{folder}/model")
            timelines = make_timelines(pipe.tokenizer, args.timelines, args.posts)
            figures = load_test(pipe, timelines, Path(folder) / "model", client, url, args.clients)
        finally:
            server.kill()
            server.wait()
    show(benchmark="live", settings=vars(args), **figures)


if __name__ == "__main__":
    main()
