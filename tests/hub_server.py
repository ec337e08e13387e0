"""Serves a small Hub on loopback for the real `huggingface_hub` client: models and Spaces, with every file inline."""

import base64
import hashlib
import json
import os
import re
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import huggingface_hub


TOKEN = "hf_" + "w" * 34


@dataclass(frozen=True)
class Commit:
    """A commit of a repository."""

    sha: str
    message: str
    files: dict[str, bytes]


class HubServer:
    """The Hub, which runs inside `with HubServer() as hub:`. A private one asks each request for `TOKEN`."""

    def __init__(self, private: bool = False):
        self.private = private
        # Commits of each repository, oldest first; the first is empty. Ids of Spaces begin with `spaces/`.
        self.repositories: dict[str, list[Commit]] = {}
        # The method and path of each request.
        self.requests: list[tuple[str, str]] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (HubHandler,), {"hub": self}))
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def __enter__(self) -> "HubServer":
        self.thread.start()
        return self

    def __exit__(self, *problem):
        self.server.shutdown()
        self.server.server_close()

    def commits(self, repo_id: str) -> list[Commit]:
        """Returns the commits that have files, oldest first."""
        return self.repositories[repo_id][1:]

    def files(self, repo_id: str) -> dict[str, bytes]:
        return self.repositories[repo_id][-1].files

    def environment(self, home: Path, **more: str) -> dict[str, str]:
        """Returns the environment of a process whose client talks to this Hub with `TOKEN` and has its own cache."""
        others = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
        settings = {"HF_ENDPOINT": self.url, "HF_HOME": str(home), "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}
        return {**others, **settings, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", **more}

    def connect(self, monkeypatch, home: Path, has_token: bool = True):
        """Connects the client of this process to this Hub. The client has read its settings on import."""
        for name in [name for name in os.environ if name.startswith("HF_")]:
            monkeypatch.delenv(name)
        for name, value in self.environment(home).items():
            monkeypatch.setenv(name, value)
        if not has_token:
            monkeypatch.delenv("HF_TOKEN")
        settings = {
            "ENDPOINT": self.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": self.url + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_OFFLINE": False,
        }
        for name, value in settings.items():
            monkeypatch.setattr(huggingface_hub.constants, name, value)
        # Existing clients hold another address.
        monkeypatch.setattr(huggingface_hub.hf_api.api, "endpoint", self.url)
        monkeypatch.setattr("transformers.utils.hub._hf_api", None, raising=False)


class HubHandler(BaseHTTPRequestHandler):
    """Handles one request."""

    hub: HubServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *arguments):
        """Logs nothing. Tests look at `hub.requests` instead."""

    def do_GET(self):
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path))
        if self.hub.private and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.reply({"error": "no token"}, 401, X_Error_Code="RepoNotFound")
        for pattern, route in ROUTES.items():
            if match := re.fullmatch(pattern, path):
                return route(self, content, **match.groupdict())
        return self.reply({"error": "no such page"}, 404)

    do_HEAD = do_POST = do_GET

    def reply(self, body, status: int = 200, **headers: str):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def find(self, repo: str, revision: str | None) -> Commit | None:
        """Returns the commit, or None after a reply that says what is missing."""
        commits = self.hub.repositories.get(repo, [])
        matching = [commit for commit in commits if revision in (None, "main", commit.sha)]
        if not matching:
            self.reply({"error": "missing"}, 404, X_Error_Code="RevisionNotFound" if commits else "RepoNotFound")
        return matching[-1] if matching else None

    def create(self, content: bytes):
        wanted = json.loads(content)
        kind = "spaces/" if wanted.get("type") == "space" else ""
        repo = f"{kind}{wanted.get('organization') or 'me'}/{wanted['name']}"
        is_known = repo in self.hub.repositories
        self.hub.repositories.setdefault(repo, [Commit(hashlib.sha1(repo.encode()).hexdigest(), "initial commit", {})])
        self.reply({"url": f"{self.hub.url}/{repo}", "name": repo}, 409 if is_known else 200)

    def check_card(self, content: bytes):
        self.reply({"errors": [], "warnings": []})

    def preupload(self, content: bytes, repo: str, revision: str):
        files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(content)["files"]]
        self.reply({"files": [{**file, "shouldIgnore": False} for file in files]})

    def commit(self, content: bytes, repo: str, revision: str):
        items = [json.loads(line) for line in content.splitlines()]
        files = {item["value"]["path"]: base64.b64decode(item["value"]["content"]) for item in items[1:]}
        files = {**self.hub.files(repo), **files}
        number = len(self.hub.repositories[repo])
        sha = hashlib.sha1(f"{repo} {number}".encode()).hexdigest()
        self.hub.repositories[repo].append(Commit(sha, items[0]["value"]["summary"], files))
        self.reply({"success": True, "commitOid": sha, "commitUrl": f"{self.hub.url}/{repo}/commit/{sha}"})

    def info(self, content: bytes, repo: str, revision: str | None = None):
        if commit := self.find(repo, revision):
            files = [{"rfilename": path} for path in commit.files]
            self.reply({"id": repo, "sha": commit.sha, "private": False, "tags": [], "siblings": files})

    def tree(self, content: bytes, repo: str, revision: str, folder: str):
        """Replies to each look-up of a folder that it is missing, since repositories here have no folders."""
        self.reply({"error": "missing"}, 404, X_Error_Code="EntryNotFound")

    def resolve(self, content: bytes, repo: str, revision: str, path: str):
        if commit := self.find(repo, revision):
            if path in commit.files:
                body = commit.files[path]
                self.reply(body, X_Repo_Commit=commit.sha, ETag=f'"{hashlib.sha1(body).hexdigest()}"')
            else:
                self.reply({"error": "missing"}, 404, X_Repo_Commit=commit.sha, X_Error_Code="EntryNotFound")


REPO, REVISION = "(?P<repo>(?:spaces/)?[^/]+/[^/]+)", "(?P<revision>[^/]+)"
API = f"/api/(?:models/|(?=spaces/)){REPO}"
ROUTES = {
    "/api/repos/create": HubHandler.create,
    "/api/validate-yaml": HubHandler.check_card,
    f"{API}/preupload/{REVISION}": HubHandler.preupload,
    f"{API}/commit/{REVISION}": HubHandler.commit,
    f"{API}/tree/{REVISION}/(?P<folder>.+)": HubHandler.tree,
    f"{API}(/revision/{REVISION})?": HubHandler.info,
    f"/{REPO}/resolve/{REVISION}/(?P<path>.+)": HubHandler.resolve,
}
