"""A small in-memory Debian archive for tests, and an HTTP server for it."""

from __future__ import annotations

import hashlib
import lzma
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LIBRARIES = [f"lib{letter}1" for letter in "abcdefgh"]


def md5(number: int) -> str:
    return f"{number:032x}"


def packages(count: int = 60) -> bytes:
    """Return a package list with three packages per source, and three tags and two dependencies per package."""
    return b"\n".join(
        (
            f"Package: tool{i}\nSource: source{i // 3} (1.0-{i})\nVersion: 1\n"
            f"Depends: {LIBRARIES[i % 8]} (>= 1.{i}) | other{i}, {LIBRARIES[i // 8 % 8]}:any\n"
            f"Description: tool number {i}\nDescription-md5: {md5(i)}\n"
            f"Tag: role::program, use::{'abc'[i % 3]},\n works-with::text\n"
        ).encode()
        for i in range(count)
    )


def translation(count: int = 60) -> bytes:
    """Return a translation file that contains the long descriptions of the packages."""
    return b"\n".join(
        f"Package: tool{i}\nDescription-md5: {md5(i)}\nDescription-en: tool number {i}\n a  long\n .\n text\n".encode()
        for i in range(count)
    )


def archive(*, by_hash: bool = True, damaged: bool = False, architecture: str) -> dict[str, bytes]:
    """Return the contents of all files in the suite ``sid``, keyed by path."""
    lists = {
        f"main/binary-{architecture}/Packages.xz": lzma.compress(packages()),
        "main/i18n/Translation-en.xz": lzma.compress(translation()),
    }
    files, sums = {}, []
    for name, data in lists.items():
        digest = hashlib.sha256(data).hexdigest()
        sums.append(f" {digest} {len(data)} {name}")
        path = f"{name.rpartition('/')[0]}/by-hash/SHA256/{digest}" if by_hash else name
        files[f"/debian/dists/sid/{path}"] = data[:-1] + b"?" if damaged else data
    release = "\n".join([*(["Acquire-By-Hash: yes"] if by_hash else []), "SHA256:", *sums])
    signed = f"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n{release}\n-----BEGIN PGP SIGNATURE-----\n\nabc\n"
    return files | {"/debian/dists/sid/InRelease": signed.encode()}


@contextmanager
def serve(files: dict[str, bytes]) -> Iterator[tuple[str, list[str]]]:
    """Serve files over HTTP, directly or as a proxy; yield the URL and a list that collects the requested paths."""
    requested: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requested.append(self.path)
            data = files.get("/" + self.path.split("/", 3)[3] if "://" in self.path else self.path)
            self.send_response(404 if data is None else 200)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", requested
        finally:
            server.shutdown()
            thread.join()
