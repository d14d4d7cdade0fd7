"""Development tasks, one command per job: ``nox -s tests``, ``lint``, ``native``, ``transformer``, ``ray``, ``docs``.

``lowest`` and ``sdist`` test the lowest supported versions of the dependencies and the source distribution. ``audit``
checks the dependencies and the code for known security problems, and ``fuzz`` runs the fuzz targets.

Sessions run in the active environment and install their dependencies into it; ``.ci/run`` creates a fresh environment
first.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import shutil
import subprocess
import sys
from pathlib import Path

import nox

#: Licenses of dependencies that can be combined with the Apache License 2.0; parts of expressions that end in "License"
#: or name a version also match.
LICENSES = (
    "0BSD", "Apache", "BSD", "CC0", "HPND", "ISC", "MIT", "MPL", "Mozilla Public License", "PSF", "Python Software",
    "Unlicense", "Zlib",
)  # fmt: skip

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
    session.run("clang-format", "--dry-run", "--Werror", *_tracked("native/*.[ch]pp", "tests/*.cpp"))


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
def audit(session: nox.Session) -> None:
    """Check the dependencies for known vulnerabilities and their licenses, and the code with bandit."""
    session.run("pip", "install", "bandit[toml]", "pip-audit", "pip-licenses")
    session.run("bandit", "--quiet", "--recursive", "--configfile", "pyproject.toml", "src", "tools")
    listing = session.run("pip-licenses", "--from=mixed", "--format=json", "--with-system", silent=True)
    unknown = _other_licenses(json.loads(str(listing)))
    if unknown:
        session.error("These licenses are not in the list LICENSES:\n" + "\n".join(unknown))
    installed = Path(session.create_tmp()) / "installed.txt"
    installed.write_text(str(session.run("pip", "freeze", "--exclude", "carya", "--exclude-editable", silent=True)))
    # --strict: fail if a package cannot be looked up, for example without access to the network.
    session.run("pip-audit", "--strict", "--no-deps", "--disable-pip", "-r", str(installed), *session.posargs)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Run every fuzz target for ten minutes, or for the time in `nox -s fuzz -- --seconds N`; requires Clang."""
    session.run("pip", "install", "atheris", "cmake", "ninja")
    session.run("python", "tools/fuzz", *session.posargs)


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


def _required_packages() -> set[str]:
    """Return the names of Carya's dependencies, including those of all extras except `dev` and `docs`."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = nox.project.load_toml("pyproject.toml")["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *(line for name in set(extras) - {"dev", "docs"} for line in extras[name])]
    waiting = [canonicalize_name(Requirement(line).name) for line in lines]
    packages: set[str] = set()
    while waiting:
        name = waiting.pop()
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            if name not in packages:
                requirements = map(Requirement, importlib.metadata.requires(name) or ())
                waiting += [
                    canonicalize_name(requirement.name)
                    for requirement in requirements
                    if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
                ]
                packages.add(name)
    return packages


def _other_licenses(packages: list[dict[str, str]]) -> list[str]:
    """Return the dependencies whose license is not in LICENSES."""
    from packaging.utils import canonicalize_name

    required = _required_packages() - {"carya"}
    return [
        f"{package['Name']} {package['Version']}: {package['License']}"
        for package in packages
        if canonicalize_name(package["Name"]) in required
        and not any(name.lower() in package["License"].lower() for name in LICENSES)
    ]


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
