"""A mock server for the HTTP API of the Hugging Face Hub, which stores repositories in memory."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeHub:
    """State of the mock server: the repositories, their visibility, and the files on each of their branches."""

    def __init__(self) -> None:
        self.address = ""
        self.repositories: dict[str, dict[str, dict[str, bytes]]] = {}
        self.private: dict[str, bool] = {}
        self.tokens: set[str | None] = set()
        self.requests: list[str] = []
        self.cards: list[str] = []  # model cards submitted for metadata validation

    def commit_of(self, name: str, revision: str) -> str:
        """Return a commit hash that depends only on the files of a branch."""
        files = self.repositories[name][revision]
        return hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()

    def resolve(self, name: str, revision: str) -> str | None:
        """Return the branch with the given name or commit hash, or None if it does not exist."""
        branches = self.repositories.get(name, {})
        if revision in branches:
            return revision
        return next((branch for branch in branches if self.commit_of(name, branch) == revision), None)


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def answer(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def answer_json(self, value: Any, status: int = 200) -> None:
        self.answer(status, json.dumps(value).encode(), Content_Type="application/json")

    def not_found(self) -> None:
        self.answer(404, b"{}", X_Error_Code="RepoNotFound", X_Error_Message="Repository Not Found")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.hub.requests.append(f"POST {self.path}")
        self.hub.tokens.add(self.headers.get("Authorization"))
        if self.path == "/api/repos/create":
            request = json.loads(body)
            name = f"{request['organization']}/{request['name']}" if request.get("organization") else request["name"]
            if name.startswith("forbidden/"):
                self.answer(403, b"{}", X_Error_Message="You are not allowed to create this repository")
                return
            self.hub.repositories.setdefault(name, {"main": {}})
            self.hub.private[name] = request.get("visibility") == "private" or bool(request.get("private"))
            self.answer_json({"url": f"{self.hub.address}/{name}", "name": name, "id": name})
        elif self.path == "/api/validate-yaml":
            self.hub.cards.append(json.loads(body)["content"])
            self.answer_json({"errors": [], "warnings": []})
        elif match := re.fullmatch(r"/api/models/(.+)/preupload/(\w+)", self.path):
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            self.answer_json({"files": files})
        elif match := re.fullmatch(r"/api/models/(.+)/commit/(\w+)", self.path):
            name, branch = match.groups()
            contents = self.hub.repositories[name].setdefault(branch, {})
            for line in body.decode().splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    contents[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            commit = self.hub.commit_of(name, branch)
            self.answer_json(
                {"success": True, "commitOid": commit, "commitUrl": f"{self.hub.address}/{name}/commit/{commit}"}
            )
        else:
            self.not_found()

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.hub.requests.append(f"{self.command} {path}")
        if match := re.fullmatch(r"/api/models/(.+)/(revision|tree)/(\w+)", path):
            name, kind, revision = match.groups()
            branch = self.hub.resolve(name, revision)
            if branch is None:
                self.not_found()
                return
            files = self.hub.repositories[name][branch]
            if kind == "tree":
                self.answer_json(
                    [{"type": "file", "path": file, "size": len(data), "oid": "0"} for file, data in files.items()]
                )
                return
            siblings = [{"rfilename": file} for file in files]
            self.answer_json({"id": name, "sha": self.hub.commit_of(name, branch), "siblings": siblings})
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/(\w+)/(.+)", path):
            name, revision, file = match.groups()
            branch = self.hub.resolve(name, revision)
            if branch is None or file not in self.hub.repositories[name][branch]:
                self.not_found()
                return
            content = self.hub.repositories[name][branch][file]
            etag = f'"{hashlib.sha1(content).hexdigest()}"'
            self.answer(200, content, ETag=etag, X_Repo_Commit=self.hub.commit_of(name, branch))
        else:
            self.not_found()


@contextmanager
def serve_fake_hub() -> Iterator[FakeHub]:
    """Run the mock server in a background thread."""
    hub = FakeHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
