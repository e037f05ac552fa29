"""A stand-in of the Hugging Face Hub: what huggingface_hub asks it for to fetch a model and to publish one."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

import huggingface_hub.constants
import pytest

TOKEN = "hf_SecretOfTheTests"


def commit_of(content: object) -> str:
    return hashlib.sha1(repr(content).encode()).hexdigest()


def blob_of(content: bytes) -> str:
    """Git's name of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Repository:
    """Commits by their names, and what its branches are at."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    private: bool = False
    gated: bool = False
    messages: list[str] = field(default_factory=list)

    def commit(self, files: dict[str, bytes], branch: str = "main") -> str:
        """A new commit with exactly these files."""
        name = commit_of((sorted(files.items()), len(self.commits)))
        self.commits[name] = files
        self.refs[branch] = name
        return name

    def at(self, revision: str) -> str | None:
        return self.refs.get(revision) or (revision if revision in self.commits else None)


class Hub(http.server.ThreadingHTTPServer):
    """Serves repositories.

    Attributes:
        repositories: by org/name.
        asked: method and path of every request, in their order.
        large: content of large files by the SHA-256 of it, of which commits are made.
        failing: status of every answer to paths that hold a word.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.asked: list[str] = []
        self.large: dict[str, bytes] = {}
        self.failing: dict[str, int] = {}
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, repository: str, folder: Path | None = None, **files: bytes) -> str:
        """A repository with the files of a folder; returns the commit."""
        found = {} if folder is None else {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
        content = {name: path.read_bytes() for name, path in found.items() if path.is_file()}
        return self.repositories.setdefault(repository, Repository()).commit(content | files)

    def fetched(self) -> list[str]:
        """Files whose content was sent."""
        return [path.rpartition("/")[2] for path in self.asked if path.startswith("GET ") and "/resolve/" in path]


class Handler(http.server.BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def answer(self, content: object = b"", status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def fail(self, status: int, code: str) -> None:
        self.answer({"error": code}, status, X_Error_Code=code, X_Error_Message=code)

    def handle_all(self) -> None:
        path = unquote(urlsplit(self.path).path)
        size = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(size)
        self.server.asked.append(f"{self.command} {path}")
        for word, status in self.server.failing.items():
            if word in path:
                self.fail(status, "Failing")
                return
        for pattern, method in ROUTES:
            if found := re.fullmatch(pattern, f"{self.command} {path}"):
                method(self, body, **found.groupdict())
                return
        self.fail(404, "EntryNotFound")

    do_GET = do_HEAD = do_POST = do_PUT = handle_all  # noqa: N815  # names of http.server

    def repository(self, name: str, revision: str | None = None) -> tuple[Repository, str] | None:
        """What is asked for and the commit it is at; None: the refusal is sent."""
        repository = self.server.repositories.get(name)
        known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if repository is None or (repository.private and not known):
            self.fail(404 if known else 401, "RepoNotFound")
        elif repository.gated and not known:
            self.fail(401, "GatedRepo")
        elif (commit := repository.at(revision or "main")) is None:
            self.fail(404, "RevisionNotFound")
        else:
            return repository, commit
        return None

    def info(self, _: bytes, name: str, revision: str | None = None) -> None:
        if found := self.repository(name, revision):
            repository, commit = found
            siblings = [{"rfilename": file} for file in repository.commits[commit]]
            self.answer({"id": name, "sha": commit, "private": repository.private, "siblings": siblings})

    def tree(self, _: bytes, name: str, revision: str) -> None:
        if found := self.repository(name, revision):
            files = found[0].commits[found[1]]
            sizes = {file: {"size": len(content), "oid": blob_of(content)} for file, content in files.items()}
            self.answer([{"type": "file", "path": file} | said for file, said in sizes.items()])

    def resolve(self, _: bytes, name: str, revision: str, file: str) -> None:
        if found := self.repository(name, revision):
            content = found[0].commits[found[1]].get(file)
            if content is None:
                self.fail(404, "EntryNotFound")
                return
            headers = {"ETag": f'"{blob_of(content)}"', "X_Repo_Commit": found[1]}
            self.answer(content, Content_Length=str(len(content)), **headers)

    def create(self, body: bytes) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.answer({"error": "no"}, 401, X_Error_Message="Invalid username or password.")
            return
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}"
        if name in self.server.repositories:
            self.answer({"error": "You already created this model repo", "url": f"{self.server.url}/{name}"}, 409)
            return
        made = Repository(private=bool(asked.get("private")) or asked.get("visibility") == "private")
        made.commit({".gitattributes": b"*.safetensors filter=lfs\n"})
        self.server.repositories[name] = made
        self.answer({"url": f"{self.server.url}/{name}", "name": name})

    def branch(self, body: bytes, name: str, branch: str) -> None:
        repository = self.server.repositories[name]
        if branch in repository.refs:
            self.answer({"error": "exists"}, 409)
            return
        start = json.loads(body or b"{}").get("startingPoint") or "main"
        repository.refs[branch] = repository.at(start) or ""
        self.answer({})

    def validate(self, body: bytes) -> None:
        self.answer({"errors": [], "warnings": []} if json.loads(body)["content"].startswith("---\n") else {}, 200)

    def preupload(self, body: bytes, name: str, revision: str) -> None:
        if found := self.repository(name, revision):
            there = found[0].commits[found[1]]
            files = []
            for asked in json.loads(body)["files"]:
                path = asked["path"]
                is_large = path.endswith(".safetensors")
                oid = None
                if path in there:
                    oid = hashlib.sha256(there[path]).hexdigest() if is_large else blob_of(there[path])
                mode = "lfs" if is_large else "regular"
                files.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid})
            self.answer({"files": files})

    def batch(self, body: bytes, name: str) -> None:
        objects = []
        for asked in json.loads(body)["objects"]:
            upload = {"upload": {"href": f"{self.server.url}/large/{asked['oid']}", "header": {}}}
            objects.append(asked if asked["oid"] in self.server.large else asked | {"actions": upload})
        self.answer({"transfer": "basic", "objects": objects})

    def put(self, body: bytes, oid: str) -> None:
        assert hashlib.sha256(body).hexdigest() == oid
        self.server.large[oid] = body
        self.answer()

    def commit(self, body: bytes, name: str, revision: str) -> None:
        if found := self.repository(name, revision):
            repository, before = found
            files = dict(repository.commits[before])
            for line in map(json.loads, body.decode().splitlines()):
                value = line["value"]
                if line["key"] == "header":
                    repository.messages.append(value["summary"])
                elif line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    files[value["path"]] = self.server.large[value["oid"]]
            commit = repository.commit(files, revision)
            self.answer({"commitUrl": f"{self.server.url}/{name}/commit/{commit}", "commitOid": commit})

    def log_message(self, *_: object) -> None:
        """Not on the terminal."""


NAME = r"(?P<name>[^/]+/[^/]+)"
ROUTES = [
    (rf"GET /api/models/{NAME}", Handler.info),
    (rf"GET /api/models/{NAME}/revision/(?P<revision>.+)", Handler.info),
    (rf"GET /api/models/{NAME}/tree/(?P<revision>[^/]+)", Handler.tree),
    (rf"(?:GET|HEAD) /{NAME}/resolve/(?P<revision>[^/]+)/(?P<file>.+)", Handler.resolve),
    (r"POST /api/repos/create", Handler.create),
    (r"POST /api/validate-yaml", Handler.validate),
    (rf"POST /api/models/{NAME}/branch/(?P<branch>.+)", Handler.branch),
    (rf"POST /api/models/{NAME}/preupload/(?P<revision>.+)", Handler.preupload),
    (rf"POST /api/models/{NAME}/commit/(?P<revision>.+)", Handler.commit),
    (rf"POST /{NAME}\.git/info/lfs/objects/batch", Handler.batch),
    (r"PUT /large/(?P<oid>[0-9a-f]+)", Handler.put),
]


@contextmanager
def running_hub() -> Iterator[Hub]:
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


def point_at(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the variables of the environment set when huggingface_hub is imported: it asks this hub, without a token."""
    constants = huggingface_hub.constants
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(cache / "token"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True, raising=False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
