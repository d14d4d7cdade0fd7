"""Tests for the files in deploy/: their syntax, the options that they pass, and real proxies if they are installed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from carya.cli.serve import serve

from serving import Server, save_model, start_server

yaml = pytest.importorskip("yaml")

DEPLOY = Path(__file__).parent.parent / "deploy"
TEXT = "the telescope shows a planet and its moon"
HOST = "tags.example.org"

if not DEPLOY.exists():
    pytest.skip("requires the source tree", allow_module_level=True)


def read(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(read(name)))


def serve_arguments() -> Iterator[Any]:
    """Yield the arguments of each `carya serve` command in the files."""
    yield pytest.param(documents("compose.yaml")[0]["services"]["carya"]["command"], id="compose.yaml")
    deployment = documents("kubernetes.yaml")[0]
    yield pytest.param(deployment["spec"]["template"]["spec"]["containers"][0]["args"], id="kubernetes.yaml")
    match = re.search(r"^CMD (\[.*\])$", read("Dockerfile"), re.MULTILINE)
    assert match
    yield pytest.param(yaml.safe_load(match[1]), id="Dockerfile")
    for name, pattern in [
        ("carya.service", r"^ExecStart=\S+/carya (serve .*)$"),
        ("nginx.conf", r"^# .*\bcarya (serve .*)$"),
        ("Caddyfile", r"^# .*\bcarya (serve .*)$"),
    ]:
        match = re.search(pattern, read(name), re.MULTILINE)
        assert match, name
        yield pytest.param(shlex.split(match[1]), id=name)


@pytest.mark.parametrize("arguments", list(serve_arguments()))
def test_commands_use_existing_options(arguments: list[str]) -> None:
    assert arguments[0] == "serve"
    context = serve.make_context("carya serve", arguments[1:])  # raises UsageError for unknown options
    assert len(context.params["models"]) == 1
    if context.params["host"] == "127.0.0.1" or context.params["workers"] == 1:
        assert context.params["max_client_share"] == 1  # all requests come from a proxy


def test_kubernetes_manifest_is_consistent() -> None:
    by_kind = {document["kind"]: document for document in documents("kubernetes.yaml")}
    pod = by_kind["Deployment"]["spec"]["template"]
    container = pod["spec"]["containers"][0]
    for probe, path in [("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")]:
        assert container[probe]["httpGet"] == {"path": path, "port": "http"}
    labels = pod["metadata"]["labels"]
    assert by_kind["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert by_kind["Service"]["spec"]["selector"] == labels
    assert by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert {volume["name"] for volume in pod["spec"]["volumes"]} == {
        mount["name"] for mount in container["volumeMounts"]
    }


def test_dockerfile_copies_only_files_in_the_build_context() -> None:
    ignore = (DEPLOY.parent / ".dockerignore").read_text(encoding="utf-8").splitlines()
    included = {line[1:] for line in ignore if line.startswith("!")}
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", read("Dockerfile"), re.MULTILINE)
        for source in line.split()[:-1]
    }
    assert copied == included
    assert all((DEPLOY.parent / name).exists() for name in copied)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="requires systemd")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "carya.service"
    unit.write_text(read("carya.service").replace("/opt/carya/bin/carya", "/bin/true"), encoding="utf-8")
    run = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert str(unit) not in run.stderr
    assert "carya.service" not in run.stderr
    assert run.returncode == 0, run.stderr


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("deployment")
    save_model(folder / "m")
    options = ["--max-client-share", "1", "--allowed-hosts", HOST]
    with start_server_of_host(folder, f"m={folder / 'm'}", *options) as server:
        yield server


@contextmanager
def start_server_of_host(folder: Path, *arguments: str) -> Iterator[Server]:
    """Start a server that also accepts the host name used by `start_server`."""
    *others, hosts = arguments
    with start_server(folder, *others, f"{hosts},127.0.0.1") as server:
        yield server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def check_prefix(port: int) -> None:
    """Check the server behind a TLS proxy with the prefix /carya/."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    base = f"https://127.0.0.1:{port}"
    with httpx.Client(verify=context, base_url=base, timeout=30) as client:
        options: dict[str, Any] = {"headers": {"Host": HOST}, "extensions": {"sni_hostname": HOST}}
        deadline = time.monotonic() + 30
        while True:  # Caddy first creates a certificate
            try:
                client.get("/carya/healthz", **options)
                break
            except httpx.ConnectError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        response = client.post("/carya/v1/suggest", json={"text": TEXT, "top_k": 1}, **options)
        assert response.status_code == 200, response.text
        assert response.json()["results"][0]["suggestions"]
        assert client.get("/carya", **options).headers["location"].endswith("/carya/")
        assert client.get("/carya/metrics", **options).status_code == 404
        assert client.get("/v1/model", **options).status_code != 200 or not client.get("/v1/model", **options).content
        for page in ("/carya/", "/carya/docs"):
            text = client.get(page, **options).text
            links = re.findall(r'(?:src|href)="([^"#:]+)"', text)
            assert links
            for link in links:  # relative links stay under the prefix
                assert not link.startswith("/")
                assert client.get(f"/carya/{link}", **options).status_code == 200
        document = client.get("/carya/openapi.json", **options).json()
        assert not document["servers"][0]["url"].startswith("/")
        too_large = client.post("/carya/v1/suggest", content=b" " * (10 << 20), **options)
        assert too_large.status_code in (413, 502)  # 502 if the server closes the connection while the proxy is sending


@pytest.mark.skipif(shutil.which("nginx") is None or shutil.which("openssl") is None, reason="requires nginx")
def test_nginx_serves_the_explorer_under_a_prefix(server: Server, tmp_path: Path) -> None:
    key, certificate, port = tmp_path / "key.pem", tmp_path / "certificate.pem", free_port()
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={HOST}"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    site = read("nginx.conf")
    for old, new in [
        ("127.0.0.1:8000", f"127.0.0.1:{server.port}"),
        ("listen 80;", f"listen 127.0.0.1:{free_port()};"),
        ("listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        (f"/etc/ssl/certs/{HOST}.pem", str(certificate)),
        (f"/etc/ssl/private/{HOST}.key", str(key)),
    ]:
        assert old in site
        site = site.replace(old, new)
    folders = "".join(
        f"{name}_temp_path {tmp_path}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (tmp_path / "site.conf").write_text(site, encoding="utf-8")
    (tmp_path / "nginx.conf").write_text(
        f"daemon off;\npid {tmp_path}/nginx.pid;\nerror_log {tmp_path}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{folders}include {tmp_path}/site.conf;\n}}\n",
        encoding="utf-8",
    )
    nginx = ["nginx", "-p", str(tmp_path), "-e", str(tmp_path / "error.log"), "-c", str(tmp_path / "nginx.conf")]
    with run_proxy(nginx):
        check_prefix(port)


@pytest.mark.skipif(shutil.which("caddy") is None, reason="requires Caddy")
def test_caddy_serves_the_explorer_under_a_prefix(server: Server, tmp_path: Path) -> None:
    port = free_port()
    site = read("Caddyfile")
    options = (
        f"{{\n\tadmin off\n\tskip_install_trust\n\thttp_port {free_port()}\n\thttps_port {port}\n\tlocal_certs\n}}\n"
    )
    (tmp_path / "Caddyfile").write_text(options + site, encoding="utf-8")
    environment = {"CARYA_UPSTREAM": f"127.0.0.1:{server.port}", "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}
    with run_proxy(["caddy", "run", "--config", str(tmp_path / "Caddyfile")], environment):
        check_prefix(port)


@contextmanager
def run_proxy(command: list[str], environment: dict[str, str] | None = None) -> Iterator[None]:
    process = subprocess.Popen(
        command, env=os.environ | (environment or {}), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(20)
