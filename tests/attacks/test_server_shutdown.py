"""Test that a server stopped under load responds to every request that it has received."""

from __future__ import annotations

import http.client
import json
import signal
import threading
import time
from pathlib import Path

from serving import save_model, start_server, wait_for_two_workers

BODY = json.dumps({"text": "the telescope shows a planet and its moon"})
HEADERS = {"Content-Type": "application/json"}


class LoadClient(threading.Thread):
    """Client that sends requests until the server refuses new connections.

    Attributes
    ----------
    answered : int
        The number of responses with status 200.
    failures : list of str
        Errors on established connections, and status codes other than 200.
    """

    def __init__(self, port: int, *, keep_alive: bool) -> None:
        super().__init__(daemon=True)
        self.answered = 0
        self.failures: list[str] = []
        self._port = port
        self._headers = HEADERS if keep_alive else {**HEADERS, "Connection": "close"}

    def run(self) -> None:
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
            try:
                connection.connect()
            except ConnectionRefusedError:
                return
            try:
                self._send_requests(connection)
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
            finally:
                connection.close()

    def _send_requests(self, connection: http.client.HTTPConnection) -> None:
        while connection.sock is not None:  # None after a response with "Connection: close"
            connection.request("POST", "/v1/suggest", BODY, self._headers)
            response = connection.getresponse()
            response.read()
            self.answered += response.status == 200
            if response.status != 200:
                self.failures.append(str(response.status))


def test_sigterm_under_load_fails_no_request(tmp_path: Path) -> None:
    save_model(tmp_path / "m")
    with start_server(tmp_path, str(tmp_path / "m"), "--workers", "2", "--log-level", "info") as server:
        wait_for_two_workers(server)
        clients = [LoadClient(server.port, keep_alive=number % 2 == 0) for number in range(10)]
        for client in clients:
            client.start()
        deadline = time.monotonic() + 60
        while min(client.answered for client in clients) < 10:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        for client in clients:
            client.join(60)
        assert not [client for client in clients if client.is_alive()]
        assert server.process.wait(60) == 0
    assert [failure for client in clients for failure in client.failures] == []
