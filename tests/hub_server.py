"""
A small Hub on loopback, for tests with the real `huggingface_hub` client.

It serves models only: repositories, uploads (preupload, LFS, commits), downloads by revision, and the check of cards.
LFS files are redirected to another host name, as to a CDN; xet is not offered. What the real Hub refuses is refused
with the same status and `X-Error-Code`.
"""

import base64
import hashlib
import json
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import huggingface_hub
import yaml


TOKEN, READ_TOKEN = "hf_" + "w" * 34, "hf_" + "r" * 34
USER = "me"
LFS_SUFFIXES = (".bin", ".safetensors")
ZERO = "0" * 40
REPO = "(?P<repo>[^/]+/[^/]+)"


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str, code: str | None = None, headers: dict | None = None, **body: Any):
        self.status, self.body = status, {"error": message, **body}
        self.headers = {"X-Error-Message": message, **(headers or {})}
        if code is not None:
            self.headers["X-Error-Code"] = code


@dataclass(frozen=True)
class Blob:
    """A file's content."""

    content: bytes
    is_lfs: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def pointer(self) -> bytes:
        """What git holds of an LFS file."""
        lines = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(self.content)}\n"
        return lines.encode()

    @property
    def oid(self) -> str:
        """As git names it."""
        stored = self.pointer if self.is_lfs else self.content
        return hashlib.sha1(b"blob %d\0" % len(stored) + stored).hexdigest()

    def entry(self, path: str) -> dict[str, Any]:
        """As in the listing of a tree."""
        entry = {"type": "file", "path": path, "size": len(self.content), "oid": self.oid}
        if self.is_lfs:
            entry["lfs"] = {"oid": self.sha256, "size": len(self.content), "pointerSize": len(self.pointer)}
        return entry


@dataclass(frozen=True)
class Commit:
    """A state of a repository."""

    sha: str
    message: str
    changed: tuple[str, ...]
    files: dict[str, Blob]
    parents: tuple[str, ...] = ()


@dataclass
class Repository:
    """Commits by their sha, and the branches that point to them."""

    name: str
    is_private: bool = False
    commits: dict[str, Commit] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def __post_init__(self):
        first = Commit(hashlib.sha1(self.name.encode()).hexdigest(), "initial commit", (), {})
        self.commits[first.sha] = first
        self.branches["main"] = first.sha

    def find(self, revision: str) -> Commit:
        sha = self.branches.get(revision, revision)
        if sha not in self.commits:
            raise Refused(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return self.commits[sha]

    def add(self, branch: str, message: str, changes: dict[str, Blob | None]) -> Commit:
        parent = self.find(branch)
        files = {path: blob for path, blob in {**parent.files, **changes}.items() if blob is not None}
        contents = sorted((path, blob.oid) for path, blob in files.items())
        sha = hashlib.sha1(f"{parent.sha}{message}{contents}".encode()).hexdigest()
        commit = Commit(sha, message, tuple(sorted(changes)), files, (parent.sha, *parent.parents))
        self.commits[sha] = commit
        self.branches[branch] = sha
        return commit


class HubServer:
    """
    The Hub, from `with HubServer() as hub:` on.

    Attributes:
        url (`str`): For `HF_ENDPOINT`.
        repositories (`dict[str, Repository]`): By name, `me/...`.
        requests (`list[tuple[str, str]]`): Method and path of each request so far.
    """

    def __init__(self):
        self.repositories: dict[str, Repository] = {}
        self.uploads: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.lock = threading.Lock()
        handler = type("Handler", (HubHandler,), {"hub": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self) -> "HubServer":
        self.thread.start()
        return self

    def __exit__(self, *problem):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def environment(self, home: Path, token: str | None = TOKEN, **more: str) -> dict[str, str]:
        """For a process whose client talks to this Hub, and keeps what it downloads in a folder of its own."""
        others = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
        settings = {
            "HF_ENDPOINT": self.url,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_XET": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }
        return {**others, **settings, **({} if token is None else {"HF_TOKEN": token}), **more}

    def connect(self, monkeypatch, home: Path, token: str | None = TOKEN):
        """Lets the client of this process, which reads its settings as it is imported, talk to this Hub."""
        for name in [name for name in os.environ if name.startswith("HF_")]:
            monkeypatch.delenv(name)
        for name, value in self.environment(home, token).items():
            if name.startswith("HF_") or name.lower() == "no_proxy":
                monkeypatch.setenv(name, value)
        settings = {
            "ENDPOINT": self.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": self.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_OFFLINE": False,
            "HF_TOKEN_PATH": str(home / "token"),
        }
        for name, value in settings.items():
            monkeypatch.setattr(huggingface_hub.constants, name, value)
        # The clients that were made before know the other address.
        monkeypatch.setattr(huggingface_hub.hf_api.api, "endpoint", self.url)
        monkeypatch.setattr("transformers.utils.hub._hf_api", None, raising=False)
        huggingface_hub.close_session()

    def files(self, repo_id: str, revision: str = "main") -> dict[str, bytes]:
        """What a repository holds."""
        return {path: blob.content for path, blob in self.repositories[repo_id].find(revision).files.items()}

    def commits(self, repo_id: str) -> list[Commit]:
        """The commits of `main` from the second on, oldest first: the first is empty."""
        repository = self.repositories[repo_id]
        head = repository.find("main")
        history = [head, *(repository.commits[sha] for sha in head.parents)]
        return history[-2::-1]


class HubHandler(BaseHTTPRequestHandler):
    """One request. Routes are tried in order."""

    hub: HubServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *arguments):
        """Tests look at `hub.requests` instead."""

    def do_GET(self):
        self.answer()

    do_HEAD = do_POST = do_PUT = do_GET

    def answer(self):
        # Read whatever comes of it: a connection serves several requests.
        self.content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                self.content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        url = urlsplit(self.path)
        self.query = parse_qs(url.query)
        self.hub.requests.append((self.command, url.path))
        try:
            for method, pattern, route in ROUTES:
                match = re.fullmatch(pattern, url.path)
                if match and self.command in method:
                    route(self, **{name: unquote(value or "") for name, value in match.groupdict().items()})
                    return
            raise Refused(404, "Sorry, we can't find the page you are looking for.")
        except Refused as refusal:
            self.reply(refusal.body, refusal.status, refusal.headers)

    def reply(self, body: Any, status: int = 200, headers: dict[str, str] | None = None):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.content)

    def token(self) -> str | None:
        """The token of the request; a wrong one is refused even where none is needed."""
        given = self.headers.get("Authorization")
        if given is None:
            return None
        token = given.removeprefix("Bearer ")
        if token not in (TOKEN, READ_TOKEN):
            raise Refused(401, "Invalid credentials in Authorization header")
        return token

    def must_write(self, owner: str = USER):
        token = self.token()
        if token is None:
            raise Refused(401, "Invalid username or password.")
        if token != TOKEN or owner != USER:
            raise Refused(403, f'You don\'t have the rights to create a model under the namespace "{owner}"')

    def repository(self, repo: str, write: bool = False) -> Repository:
        """A private repository is missing to who may not read it."""
        token = self.token()
        repository = self.hub.repositories.get(repo)
        if repository is None or (repository.is_private and token is None):
            raise Refused(404 if token else 401, "Repository not found", "RepoNotFound")
        if write:
            self.must_write(repo.split("/")[0])
        return repository

    def whoami(self):
        if self.token() is None:
            raise Refused(401, "Invalid username or password.")
        self.reply({"type": "user", "name": USER, "auth": {"type": "access_token"}})

    def create(self):
        owner, name = self.json.get("organization") or USER, self.json["name"]
        self.must_write(owner)
        repo = f"{owner}/{name}"
        url = {"url": f"{self.hub.url}/{repo}", "name": repo}
        with self.hub.lock:
            if repo in self.hub.repositories:
                raise Refused(409, "You already created this model repo", **url)
            self.hub.repositories[repo] = Repository(repo, self.json.get("visibility") == "private")
        self.reply(url)

    def check_card(self):
        problems = card_problems(self.json["content"])
        body = {"errors": [{"message": problem} for problem in problems], "warnings": []}
        self.reply(body, 400 if problems else 200)

    def branch(self, repo: str, name: str):
        repository = self.repository(repo, write=True)
        start = repository.find((self.json if self.content else {}).get("startingPoint", "main"))
        if name in repository.branches:
            raise Refused(409, f"Reference already exists: refs/heads/{name}")
        repository.branches[name] = start.sha
        self.reply({})

    def preupload(self, repo: str, revision: str):
        files = self.repository(repo, write=True).find(revision).files
        answers = []
        for file in self.json["files"]:
            answer = {"path": file["path"], "shouldIgnore": False}
            answer["uploadMode"] = "lfs" if file["path"].endswith(LFS_SUFFIXES) else "regular"
            if known := files.get(file["path"]):
                answer["oid"] = known.sha256 if known.is_lfs else known.oid
            answers.append(answer)
        self.reply({"files": answers})

    def lfs_batch(self, repo: str):
        self.repository(repo, write=True)
        objects = []
        for wanted in self.json["objects"]:
            answer = {"oid": wanted["oid"], "size": wanted["size"]}
            if wanted["oid"] not in self.hub.uploads:
                answer["actions"] = {
                    "upload": {"href": f"{self.hub.url}/upload/{wanted['oid']}"},
                    "verify": {"href": f"{self.hub.url}/{repo}.git/info/lfs/verify"},
                }
            objects.append(answer)
        self.reply({"transfer": "basic", "objects": objects})

    def lfs_upload(self, oid: str):
        if hashlib.sha256(self.content).hexdigest() != oid:
            raise Refused(400, "The sha256 of the content is not the one that was announced")
        self.hub.uploads[oid] = self.content
        self.reply({})

    def lfs_verify(self, repo: str):
        self.repository(repo, write=True)
        self.must_be_uploaded(self.json["oid"], self.json["size"])
        self.reply({})

    def must_be_uploaded(self, oid: str, size: int) -> bytes:
        content = self.hub.uploads.get(oid)
        if content is None or len(content) != size:
            raise Refused(404, f"LFS object {oid} of {size} bytes was not uploaded")
        return content

    def commit(self, repo: str, revision: str):
        repository = self.repository(repo, write=True)
        header, changes = None, {}
        for line in self.content.splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "header":
                header = value
            elif item["key"] == "file":
                changes[value["path"]] = Blob(base64.b64decode(value["content"]), False)
            elif item["key"] == "lfsFile":
                changes[value["path"]] = Blob(self.must_be_uploaded(value["oid"], value["size"]), True)
            elif item["key"] == "deletedFile":
                changes[value["path"]] = None
            else:
                raise Refused(400, f"Unknown operation {item['key']}")
        if header is None or not changes:
            raise Refused(400, "A commit needs a header and files")
        with self.hub.lock:
            if header.get("parentCommit", repository.find(revision).sha) != repository.find(revision).sha:
                raise Refused(412, "A commit has happened since. Please refresh and try again.")
            commit = repository.add(revision, header["summary"], changes)
        self.reply(
            {"success": True, "commitOid": commit.sha, "commitUrl": f"{self.hub.url}/{repo}/commit/{commit.sha}"}
        )

    def info(self, repo: str, revision: str = "main"):
        repository = self.repository(repo)
        commit = repository.find(revision or "main")
        files = [{"rfilename": path} for path in sorted(commit.files)]
        tags = []
        if card := commit.files.get("README.md"):
            data = card_data(card.content.decode()) or {}
            tags = [*data.get("tags", []), *(f"license:{data['license']}" for _ in range("license" in data))]
        info = {"id": repo, "sha": commit.sha, "private": repository.is_private, "tags": tags, "siblings": files}
        self.reply(info)

    def tree(self, repo: str, revision: str, folder: str = ""):
        files = self.repository(repo).find(revision).files
        prefix = f"{folder}/" if folder else ""
        inside = {path: blob for path, blob in files.items() if path.startswith(prefix)}
        if folder and not inside:
            raise Refused(404, f"{folder} does not exist", "EntryNotFound")
        entries: dict[str, dict] = {}
        for path, blob in sorted(inside.items()):
            parts = path.removeprefix(prefix).split("/")
            for depth in range(1, len(parts)):
                name = prefix + "/".join(parts[:depth])
                entries[name] = {"type": "directory", "path": name, "oid": ZERO, "size": 0}
            entries[path] = blob.entry(path)
        if self.query.get("recursive", ["false"])[0].lower() != "true":
            entries = {path: entry for path, entry in entries.items() if "/" not in path.removeprefix(prefix)}
        self.reply(list(entries.values()))

    def refs(self, repo: str):
        branches = self.repository(repo).branches
        listed = [{"name": name, "ref": f"refs/heads/{name}", "targetCommit": sha} for name, sha in branches.items()]
        self.reply({"branches": listed, "converts": [], "tags": []})

    def history(self, repo: str, revision: str):
        repository = self.repository(repo)
        head = repository.find(revision)
        shas = [head.sha, *head.parents]
        self.reply(
            [
                {"id": sha, "title": repository.commits[sha].message, "message": "", "authors": [], "date": DATE}
                for sha in shas
            ]
        )

    def resolve(self, repo: str, revision: str, path: str):
        commit = self.repository(repo).find(revision)
        headers = {"X-Repo-Commit": commit.sha}
        blob = commit.files.get(path)
        if blob is None:
            raise Refused(404, "Entry not found", "EntryNotFound", headers)
        if blob.is_lfs:
            headers |= {"X-Linked-Etag": f'"{blob.sha256}"', "X-Linked-Size": str(len(blob.content))}
            headers["Location"] = f"http://localhost:{self.hub.port}/cdn/{blob.sha256}"
            self.reply({}, 302, headers)
        else:
            self.reply(blob.content, headers={"ETag": f'"{blob.oid}"', **headers})

    def cdn(self, oid: str):
        if "Authorization" in self.headers:
            raise Refused(400, "The token has left the Hub")
        if oid not in self.hub.uploads:
            raise Refused(404, "No such object")
        self.reply(self.hub.uploads[oid], headers={"ETag": f'"{oid}"'})


DATE = "2024-01-01T00:00:00.000Z"
API, REVISION = f"/api/models/{REPO}", "(?P<revision>[^/]+)"
READ, WRITE = ("GET", "HEAD"), ("POST",)
ROUTES: list[tuple[tuple[str, ...], str, Callable]] = [
    (READ, "/api/whoami-v2", HubHandler.whoami),
    (WRITE, "/api/repos/create", HubHandler.create),
    (WRITE, "/api/validate-yaml", HubHandler.check_card),
    (WRITE, f"{API}/branch/(?P<name>[^/]+)", HubHandler.branch),
    (WRITE, f"{API}/preupload/{REVISION}", HubHandler.preupload),
    (WRITE, f"{API}/commit/{REVISION}", HubHandler.commit),
    (READ, f"{API}/tree/{REVISION}(/(?P<folder>.+))?", HubHandler.tree),
    (READ, f"{API}/refs", HubHandler.refs),
    (READ, f"{API}/commits/{REVISION}", HubHandler.history),
    (READ, f"{API}/revision/{REVISION}", HubHandler.info),
    (READ, API, HubHandler.info),
    (WRITE, f"/{REPO}.git/info/lfs/objects/batch", HubHandler.lfs_batch),
    (WRITE, f"/{REPO}.git/info/lfs/verify", HubHandler.lfs_verify),
    (("PUT",), "/upload/(?P<oid>[0-9a-f]{64})", HubHandler.lfs_upload),
    (READ, "/cdn/(?P<oid>[0-9a-f]{64})", HubHandler.cdn),
    (READ, f"/{REPO}/resolve/{REVISION}/(?P<path>.+)", HubHandler.resolve),
]


def card_data(content: str) -> dict[str, Any] | None:
    """The metadata at the beginning of a card."""
    match = re.match(r"---\n(.*?)\n---(\n|$)", content, flags=re.DOTALL)
    return yaml.safe_load(match[1]) if match else None


def card_problems(content: str) -> list[str]:
    """What the Hub would refuse in a card's metadata."""
    data = card_data(content)
    if data is None:
        return []
    if not isinstance(data, dict):
        return ["The metadata must be a mapping"]
    problems = []
    for name in ("license", "library_name", "pipeline_tag"):
        if not isinstance(data.get(name, ""), str):
            problems.append(f'"{name}" must be a string')
    for name in ("language", "tags", "datasets", "metrics", "base_model"):
        values = data.get(name, [])
        values = [values] if isinstance(values, str) else values
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            problems.append(f'"{name}" must be a string or a list of strings')
        elif name in ("datasets", "base_model") and not all(is_repo_id(value) for value in values):
            problems.append(f'"{name}" must hold ids of repositories: {values}')
    for model in data.get("model-index", []):
        if not isinstance(model.get("name"), str):
            problems.append('"model-index[].name" must be a string')
        for result in model.get("results", []):
            for part, names in (("task", ("type",)), ("dataset", ("type", "name"))):
                for name in names:
                    if not isinstance(result.get(part, {}).get(name), str):
                        problems.append(f'"model-index[].results[].{part}.{name}" is required')
            for metric in result.get("metrics", [{}]):
                if not isinstance(metric.get("type"), str) or "value" not in metric:
                    problems.append('"model-index[].results[].metrics[]" needs a type and a value')
    return problems


def is_repo_id(value: str) -> bool:
    return re.fullmatch(r"[\w.-]+(/[\w.-]+)?", value) is not None
