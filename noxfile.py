"""Development tasks, one command per job: ``nox -s tests``, ``lint``, ``native``, ``transformer``, ``ray``, ``docs``.

``lowest`` and ``sdist`` test the lowest supported versions of the dependencies and the source distribution.

Sessions run in the active environment and install their dependencies into it; ``.ci/run`` creates a fresh environment
first.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["tests", "lint", "native", "transformer"]


@nox.session
def tests(session: nox.Session) -> None:
    """Run the test command from the README."""
    session.run("pip", "install", ".[test]")
    session.run("pytest", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, formatting and types. Carya must be installed."""
    # Install only the tools, because `.[lint]` would build the native core again.
    extras = nox.project.load_toml("pyproject.toml")["project"]["optional-dependencies"]
    session.run("pip", "install", *extras["lint"])
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("clang-format", "--dry-run", "--Werror", *_tracked("native/*.[ch]pp", "tests/native/*.cpp"))


@nox.session
def native(session: nox.Session) -> None:
    """Build the native core, treating warnings as errors, and run its self-test."""
    session.run("pip", "install", "cmake", "ninja")
    build = Path(session.create_tmp()) / "native"
    options = ["-DCARYA_PYTHON=OFF", "-DCARYA_WERROR=ON", "-DCARYA_SELF_TEST=ON"]
    session.run("cmake", "-G", "Ninja", "-S", ".", "-B", str(build), *options)
    session.run("cmake", "--build", str(build))
    session.run(str(build / "carya_self_test"))
    leaked = _weak_symbols_outside_kernels(build)
    if leaked:
        session.error("Kernels define weak symbols outside their instruction-set namespaces:\n" + "\n".join(leaked))


@nox.session
def transformer(session: nox.Session) -> None:
    """Run the tests that require PyTorch; the README's test command skips them."""
    # Install PyTorch and the other packages from the `transformer` extra; Carya is already installed.
    session.run("pip", "install", "torch==2.13.0", "transformers", "safetensors")
    session.run("pytest", "-m", "transformer", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def ray(session: nox.Session) -> None:
    """Run the tests that require Ray; the README's test command skips them."""
    session.run("pip", "install", "ray[data]>=2.50")
    session.run("pytest", "tests/test_ray.py", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site in ``site/``; warnings are errors."""
    session.run("pip", "install", ".[docs]")
    session.run("mkdocs", "build", "--strict", *session.posargs)


@nox.session
def lowest(session: nox.Session) -> None:
    """Run the tests with the lowest supported versions of the direct dependencies, in a separate environment."""
    session.run("pip", "install", "uv")
    environment = Path(session.create_tmp()) / "lowest"
    python = environment / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    session.run("uv", "venv", "--clear", "--python", sys.executable, str(environment))
    session.run("uv", "pip", "install", "--python", str(python), "--resolution", "lowest-direct", ".[test]")
    session.run(str(python), "-m", "pytest", *session.posargs)


@nox.session
def sdist(session: nox.Session) -> None:
    """Build the source distribution, install it in a separate environment, and run the tests that it contains."""
    session.run("pip", "install", "build", "twine")
    folder = Path(session.create_tmp()) / "sdist"
    shutil.rmtree(folder, ignore_errors=True)
    session.run("python", "-m", "build", "--sdist", "--outdir", str(folder))
    (archive,) = folder.glob("*.tar.gz")
    session.run("twine", "check", "--strict", str(archive))
    shutil.unpack_archive(archive, folder)
    session.run("python", "-m", "venv", str(folder / "venv"))
    python = folder / "venv" / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    session.run(str(python), "-m", "pip", "install", f"{archive}[test]")
    with session.chdir(folder / archive.name.removesuffix(".tar.gz")):
        session.run(str(python), "-m", "pytest", *session.posargs)


def _tracked(*patterns: str) -> list[str]:
    listing = subprocess.run(["git", "ls-files", *patterns], capture_output=True, text=True, check=True).stdout
    return listing.split()


def _weak_symbols_outside_kernels(build: Path) -> list[str]:
    """Return the weak symbols of the kernels that are outside the instruction-set namespaces (see kernels.hpp)."""
    objects = [str(path) for path in build.rglob("*.o") if "carya_kernels_" in str(path)]
    symbols = subprocess.run(["nm", "-C", *objects], capture_output=True, text=True, check=True).stdout
    namespaces = ("carya::baseline::", "carya::avx2::", "carya::avx512::")
    return [
        line
        for line in symbols.splitlines()
        if (" W " in line or " V " in line) and not any(namespace in line for namespace in namespaces)
    ]
