"""Checks the files of examples/service: the image, the composition, the proxy and the unit of systemd."""

import configparser
import http.client
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import yaml
from arrivals import free_port, wait_for, wait_until_ready
from helpers import ROOT
from saved import save_model

from tempoformer_live.settings import ServerSettings


FOLDER = ROOT / "examples" / "service"
DOCKERFILE = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
WORKERS = ["worker-1", "worker-2"]


def instruction(name: str) -> list[str]:
    """Returns the arguments of the instructions of a name; the lines of one are joined."""
    return re.findall(rf"^ *{name} (.+)$", DOCKERFILE.replace("\\\n", " "), flags=re.MULTILINE)


def build_context(folder: Path) -> Path:
    """Copies what the image gets, as the Dockerfile says, to a folder."""
    allowed = (FOLDER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for line in instruction("COPY"):
        *sources, target = line.split()
        for source in sources:
            assert f"!{source}" in allowed
            if (ROOT / source).is_dir():
                assert target == source
                shutil.copytree(ROOT / source, folder / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                assert target in (".", "./")
                shutil.copy(ROOT / source, folder)
    return folder


def command_of(folder: Path, port: int) -> list[str]:
    """Returns the command of the image, with the port of a test."""
    program, *words = json.loads(instruction("ENTRYPOINT")[0])
    assert program == "tempoformer"
    return [sys.executable, str(folder / "tempoformer.py"), *words, "--port", str(port)]


def environment(folder: Path, model: str, redis_url: str) -> dict[str, str]:
    """Returns the variables that the image sets, with a test's model and Redis, and the place of its packages."""
    variables = dict(word.split("=") for word in shlex.split(instruction("ENV")[0]))
    there = {"/model": model, "redis://redis:6379/0": redis_url, "0.0.0.0": "127.0.0.1"}
    variables = {name: there.pop(value, value) for name, value in variables.items()}
    assert not there
    return {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(map(str, (folder, folder / "packages" / "live")))}


def succeed(command: list[str]):
    """Runs a command. Raises an `OSError` if it fails."""
    if subprocess.run(command, stderr=subprocess.DEVNULL).returncode:
        raise OSError(f"{command} failed.")


def test_the_image_holds_every_package(tmp_path):
    """The image has all that `setup.cfg` names, for `pip install`. The test of the proxy runs the command."""
    folder = build_context(tmp_path)
    for part in (".", "packages/live"):
        setup = configparser.ConfigParser()
        setup.read(ROOT / part / "setup.cfg", encoding="utf-8")
        places = dict(line.split(" = ") for line in setup["options"].get("package_dir", "").split("\n") if line)
        for package in setup["options"]["packages"].split():
            assert (folder / part / places.get(package, package.replace(".", "/")) / "__init__.py").is_file()
    assert instruction("USER") == ["worker"]


def seconds_to_stop() -> float:
    """Returns the seconds that a worker takes to drain by default, and a few more."""
    return 5 + ServerSettings(model="any").notice_seconds + ServerSettings(model="any").drain_seconds


def test_the_composition_names_files_and_services_that_are_there():
    services = COMPOSE["services"]
    proxied = re.findall(r"server ([\w-]+):(\d+)", (FOLDER / "nginx.conf").read_text(encoding="utf-8"))
    assert proxied == [(worker, instruction("EXPOSE")[0]) for worker in WORKERS]
    for worker in WORKERS:
        build = services[worker]["build"]
        context = (FOLDER / build["context"]).resolve()
        assert context == ROOT and (context / build["dockerfile"]).is_file()
        assert services[worker]["volumes"][0].split("}")[1] == ":/model:ro"
        assert list(services[worker]["depends_on"]) == ["redis"]
        # Docker kills a worker that drains for longer.
        assert services[worker]["stop_grace_period"] == f"{seconds_to_stop():.0f}s"
    config, inside, _ = services["proxy"]["volumes"][0].split(":")
    assert (FOLDER / config).is_file() and inside == "/etc/nginx/nginx.conf"
    assert list(services["proxy"]["depends_on"]) == WORKERS


def test_systemd_takes_the_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("There is no systemd.")
    unit = (FOLDER / "tempoformer@.service").read_text(encoding="utf-8")
    assert f"TimeoutStopSec={seconds_to_stop():.0f}\n" in unit
    here = unit.replace("/opt/tempoformer/venv/bin/tempoformer", sys.executable)
    (tmp_path / "tempoformer@.service").write_text(here, encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "tempoformer@.service"], capture_output=True, text=True
    )
    lines = [line for line in done.stderr.splitlines() if "tempoformer@" in line]
    assert done.returncode == 0 and not lines, lines


def proxy_config(folder: Path, ports: dict[str, int], proxy: int) -> Path:
    """Writes the configuration of the proxy with the ports of a test, and nothing outside the folder of the test."""
    config = (FOLDER / "nginx.conf").read_text(encoding="utf-8").replace("listen 8000", f"listen 127.0.0.1:{proxy}")
    for worker, port in ports.items():
        config = config.replace(f"{worker}:8000", f"127.0.0.1:{port}")
    settings = "".join(
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = config.replace("/tmp/nginx.pid", f"{folder}/pid").replace("http {", f"http {{ {settings}", 1)
    (folder / "nginx.conf").write_text(config, encoding="utf-8")
    return folder / "nginx.conf"


# Answers a path that ends in a status with it, and others after two seconds. Writes down what it gets.
SLOW_WORKER = """
import http.server, sys, time

class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        print(self.path, flush=True)
        status = self.path.rpartition("/")[2]
        if not status.isdigit():
            time.sleep(2)
        self.send_response(int(status) if status.isdigit() else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *values):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.mark.slow
def test_the_proxy_does_not_send_a_post_that_takes_too_long_to_the_other_worker(tmp_path):
    """One that a worker has no room for it does."""
    if shutil.which("nginx") is None:
        pytest.skip("There is no nginx.")
    ports, proxy = {worker: free_port() for worker in WORKERS}, free_port()
    config = proxy_config(tmp_path, ports, proxy)
    config.write_text(config.read_text(encoding="utf-8").replace("proxy_read_timeout 30s", "proxy_read_timeout 1s"))
    with ExitStack() as opened:
        for worker, port in ports.items():
            log = opened.enter_context((tmp_path / worker).open("w"))
            opened.callback(subprocess.Popen([sys.executable, "-c", SLOW_WORKER, str(port)], stdout=log).kill)
            wait_for(lambda port=port: httpx.post(f"http://127.0.0.1:{port}/204", content=b"{}"))
        nginx = ["nginx", "-p", str(tmp_path), "-c", str(config), "-e", str(tmp_path / "errors"), "-g", "daemon off;"]
        opened.callback(subprocess.Popen(nginx).terminate)
        client = opened.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{proxy}", timeout=60))
        wait_for(lambda: client.post("/204", content=b"{}"))
        assert client.post("/score", content=b"{}").status_code == 504

        def posts(path: str) -> int:
            return sum((tmp_path / worker).read_text().count(path) for worker in WORKERS)

        def both_are_asked() -> bool:
            """Says whether one more post without room reached both: a worker that failed is left out for a while."""
            before = posts("/full")
            client.post("/full/503", content=b"{}")
            return posts("/full") == before + 2

        end = time.monotonic() + 60
        while not both_are_asked():
            assert time.monotonic() < end
            time.sleep(0.2)
        assert posts("/score") == 1


class HalfRequest:
    """Half of a request; a worker waits for the rest."""

    def __init__(self, port: int, post: dict):
        body = json.dumps(post).encode()
        self.rest = body[10:]
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.connection.putrequest("POST", "/score")
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), "X-Request-ID": "half"}
        for name, value in headers.items():
            self.connection.putheader(name, value)
        self.connection.endheaders(body[:10])

    def finish(self) -> dict:
        self.connection.send(self.rest)
        answer = self.connection.getresponse()
        assert answer.status == 200 and answer.headers["X-Request-ID"] == "half"
        return json.loads(answer.read())


def refuses(port: int):
    """Raises an `OSError` if somebody listens at a port."""
    with socket.socket() as asking:
        if asking.connect_ex(("127.0.0.1", port)) == 0:
            raise OSError("It listens.")


@pytest.mark.slow
def test_the_proxy_gives_posts_to_the_other_worker_while_one_stops_or_is_dead(redis_url, tmp_path):
    """
    Each post is read once: the streams grow by one post, whoever answers. SIGTERM ends a worker with status 0 once a
    request in flight is answered, and with 1 where that takes too long.
    """
    folder = build_context(tmp_path)
    ports, proxy = {worker: free_port() for worker in WORKERS}, free_port()
    variables = environment(folder, save_model(tmp_path / "model"), redis_url)
    proxy_config(tmp_path, ports, proxy)
    with ExitStack() as opened:

        def start(worker: str, **seconds: str) -> subprocess.Popen:
            log = opened.enter_context((tmp_path / f"{worker}.log").open("a"))
            settings = {**variables, **{f"TEMPOFORMER_SERVE_{name}_SECONDS": value for name, value in seconds.items()}}
            process = subprocess.Popen(command_of(folder, ports[worker]), cwd=folder, env=settings, stdout=log)
            opened.callback(process.kill)
            return process

        processes = {worker: start(worker, NOTICE="2") for worker in WORKERS}
        check = json.loads(instruction("HEALTHCHECK")[0].partition("CMD ")[2])
        for port in ports.values():
            healthy = [sys.executable, *(word.replace("8000", str(port)) for word in check[1:])]
            wait_for(lambda healthy=healthy: succeed(healthy))
        nginx = ["nginx", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "errors")]
        opened.callback(subprocess.Popen([*nginx, "-g", "daemon off;"]).terminate)
        client = opened.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{proxy}", timeout=60))
        first = opened.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{ports['worker-1']}", timeout=60))
        wait_for(lambda: client.get("/ready"))
        lengths = []
        half = {"timeline_id": "bob", "post_id": "1", "text": "alone", "timestamp": 1.0}
        for number in range(12):
            if number == 4:
                in_flight = HalfRequest(ports["worker-1"], half)
                assert first.get("/ready").status_code == 200
                processes["worker-1"].terminate()
            if number == 6:
                assert (first.get("/ready").status_code, first.get("/live").status_code) == (503, 200)
                wait_for(lambda: refuses(ports["worker-1"]))
                assert in_flight.finish()["stream_length"] == 1
                assert processes["worker-1"].wait(60) == 0
            if number == 8:
                last = start("worker-1", NOTICE="0", DRAIN="0.5")
                processes["worker-2"].kill()
                wait_until_ready(first)
            post = {"timeline_id": "ann", "post_id": str(number), "text": "so happy", "timestamp": float(number)}
            answer = client.post("/score", json=post)
            lengths.append(answer.raise_for_status().json()["stream_length"])
        assert client.get("/metrics").status_code == 404
        unfinished = HalfRequest(ports["worker-1"], half)
        assert first.get("/live").status_code == 200
        last.terminate()
        assert last.wait(60) == 1
        unfinished.connection.close()
    window = json.loads((tmp_path / "model" / "config.json").read_text(encoding="utf-8"))["window"]
    assert lengths == [min(number + 1, window) for number in range(12)] and window > 1
    lines = [json.loads(line) for line in (tmp_path / "worker-1.log").read_text(encoding="utf-8").splitlines()]
    assert [line["status"] for line in lines if line.get("request_id") == "half"] == [200]
