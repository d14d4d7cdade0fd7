"""The walls of the building: who may import whom, and what `import carya` may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import carya

ROOT = Path(carya.__file__).parent

# From the ground up; a module may import from its own floor's list of neighbours and from any floor below.
FLOORS: list[set[str]] = [
    {"errors", "_core"},
    {"core"},
    {"trees", "metrics"},
    {"indexing", "matching", "ranking", "data"},
    {"models"},
    {"text"},
    {"transformer"},
    {"loading"},
    {"serve"},
    {"cli"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "carya"


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} if node.module != "carya" else {f"carya.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "carya"}


def test_imports_go_one_way() -> None:
    wrong = []
    for path in sorted(ROOT.rglob("*.py")):
        relative = path.relative_to(ROOT)
        if relative.name == "__init__.py" and len(relative.parts) == 1:
            continue
        here = relative.parts[0].removesuffix(".py")
        for module in imports(path):
            there = room_of(module)
            if there in ("carya", here):
                continue
            if there not in FLOOR or here not in FLOOR:
                wrong.append(f"{relative} imports {module}: not on the plan")
            elif FLOOR[there] >= FLOOR[here]:
                wrong.append(f"{relative} imports {module}")
    assert not wrong


def test_the_three_phases_do_not_know_each_other() -> None:
    phases = {"indexing", "matching", "ranking"}
    for phase in phases:
        for path in (ROOT / phase).rglob("*.py"):
            assert not {room_of(module) for module in imports(path)} & (phases - {phase}), path


def test_import_is_light() -> None:
    code = "import sys, carya; print(len(sys.modules), *sorted(m for m in sys.modules if '.' not in m))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "scipy", "sklearn", "torch", "rich", "typer", "ray"} & set(loaded)
    code = "import sys, carya; carya.XRLinear; print(*sorted(m for m in sys.modules if '.' not in m))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"sklearn", "torch", "rich", "typer", "ray"} & set(loaded)


def test_no_pickle_no_shell_no_eval() -> None:
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile"), path
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = {alias.name for alias in node.names} | {getattr(node, "module", "") or ""}
                assert not names & {"pickle", "subprocess", "marshal", "shelve", "joblib"}, path


def test_every_public_name_is_documented() -> None:
    for name in carya.__all__:
        assert getattr(carya, name).__doc__, name
    for name in carya.metrics.__all__:
        assert getattr(carya.metrics, name).__doc__, name


def test_native_code_knows_no_python_outside_bind() -> None:
    native = Path(__file__).parent.parent / "native"
    for path in native.rglob("*.[ch]pp"):
        if path.parent.name != "bind":
            text = path.read_text(encoding="utf-8")
            assert "nanobind" not in text, path
            assert "Python.h" not in text, path
