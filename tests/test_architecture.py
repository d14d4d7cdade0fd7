"""Tests for the package structure: allowed imports, names, folder sizes, and modules loaded by `import carya`."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import carya

PACKAGE = Path(carya.__file__).parent
TESTS = Path(__file__).parent

# Layers from lowest to highest. A module may import from its own package and from lower layers.
LAYERS: list[set[str]] = [
    {"errors", "fork_safety", "interpreter", "version", "_core"},
    {"core", "c_library"},
    {"trees", "metrics", "upgrade"},
    {"indexing", "matching", "ranking", "data"},
    {"models"},
    {"text"},
    {"transformer"},
    {"diagnostics", "loading", "planning", "report", "tuning"},
    {"cluster", "hub"},
    {"serve"},
    {"cli"},
    {"__main__"},
]
LAYER_OF = {package: number for number, packages in enumerate(LAYERS) for package in packages}

# Restrictions within a layer: modules or folders, and the modules and folders that they must not import.
WALLS: dict[str, set[str]] = {
    "indexing": {"matching", "ranking"},
    "matching": {"indexing", "ranking"},
    "ranking": {"indexing", "matching"},
    "models.base": {"models.xr_linear", "models.neighbors", "models.ensemble", "models.reranked", "models.presets"},
    "models.registry": {"models.xr_linear", "models.neighbors", "models.ensemble", "models.reranked"},
    "models.xr_linear": {"models.neighbors", "models.ensemble", "models.reranked", "models.presets"},
    "models.neighbors": {"models.ensemble.model", "models.reranked", "models.presets"},
    "models.ensemble": {"models.neighbors", "models.reranked", "models.presets"},
    "models.reranked": {"models.neighbors", "models.presets"},
    "text.tfidf": {"text.text_ranker", "text.labels"},
    "text.serialize": {"text.text_ranker", "text.explore"},
    "text.text_ranker": {"text.explore"},
    "transformer.encoder": {"transformer.training", "transformer.rankers", "transformer.base", "transformer.settings"},
    "transformer.training": {"transformer.base", "transformer.rankers.rankers", "transformer.serialize"},
    "transformer.rankers": {"transformer.base", "transformer.training.trainer", "transformer.training.fine_tuning"},
    "transformer.serialize": {"transformer.base", "transformer.xr_transformer", "transformer.training"},
    "data.io": {"data.formats", "data.read_write", "data.corpus", "data.synthetic", "data.debian"},
    "data.formats": {"data.read_write", "data.synthetic", "data.debian"},
    "data.synthetic": {"data.formats", "data.read_write", "data.debian"},
    "data.debian": {"data.formats", "data.read_write", "data.synthetic"},
    "serve.settings": {"serve.http", "serve.routes", "serve.app", "serve.server"},
    "serve.registry": {"serve.routes", "serve.app", "serve.server"},
    "serve.http": {
        "serve.app",
        "serve.server",
        "serve.routes.api",
        "serve.routes.annif",
        "serve.routes.explorer",
        "serve.routes.openapi",
        "serve.routes.pages",
        "serve.routes.table",
    },
    "serve.routes": {"serve.app", "serve.server"},
    "cli.options": {"cli.train", "cli.predict", "cli.evaluate", "cli.serve", "cli.data"},
    "cli.data": {"cli.train", "cli.predict", "cli.evaluate", "cli.serve"},
}

# Modules in cli that do not define commands.
CLI_SHARED = {"cli.app", "cli.commands"}

# External packages, and the only layers that may import them, even lazily.
EXTERNAL: dict[str, set[str]] = {
    "torch": {"transformer"},
    "transformers": {"transformer"},
    "starlette": {"serve"},
    "uvicorn": {"serve"},
    "click": {"cli"},
    "ray": {"cluster"},
    "matplotlib": {"report"},
    "huggingface_hub": {"hub"},
    "fastapi": set(),
    "flask": set(),
}

MAX_MODULES = 12


def module_name(path: Path) -> str:
    """Return the dotted module name of a source file, relative to the package, e.g. ``core.storage``."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield the name and syntax tree of each module, except for the top-level ``__init__``."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if name := module_name(path):
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def imports(tree: ast.Module, *, for_annotations: bool = True) -> set[str]:
    """Return the full names of all modules and objects imported by statements, ``require`` or ``import_module``.

    If `for_annotations` is False, imports under ``if TYPE_CHECKING`` are excluded.
    """
    skipped: set[int] = set()
    if not for_annotations:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                skipped |= {id(child) for child in ast.walk(node)}
    names: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("require", "import_module")) and node.args:
            names |= {
                argument.value
                for argument in node.args[:1]
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            }
    return names


def own_imports(tree: ast.Module, *, for_annotations: bool = True) -> set[str]:
    """Return the imported names that belong to this package, without the prefix ``carya.``."""
    names = imports(tree, for_annotations=for_annotations)
    return {name.removeprefix("carya.") for name in names if name.startswith("carya.")}


def is_within(name: str, prefix: str) -> bool:
    """Return whether a dotted name is equal to `prefix` or lies within it."""
    return name == prefix or name.startswith(f"{prefix}.")


def test_modules_import_only_from_lower_layers() -> None:
    violations = []
    checked = 0
    for name, tree in modules():
        package = name.partition(".")[0]
        for imported in own_imports(tree):
            other = imported.partition(".")[0]
            checked += 1
            if other != package and LAYER_OF[other] >= LAYER_OF[package]:
                violations.append(f"{name} imports {imported}")
    assert not violations
    assert checked > 500


@pytest.mark.parametrize("inner", WALLS)
def test_imports_respect_the_restrictions_within_a_layer(inner: str) -> None:
    names = [name for name, _ in modules()]
    for prefix in {inner, *WALLS[inner]}:
        assert any(is_within(name, prefix) for name in names), f"{prefix} does not exist"
    violations = [
        f"{name} imports {imported}"
        for name, tree in modules()
        if is_within(name, inner)
        for imported in own_imports(tree, for_annotations=False)
        for outer in WALLS[inner]
        if is_within(imported, outer)
    ]
    assert not violations


def test_commands_do_not_import_each_other() -> None:
    commands = {name for name, _ in modules() if name.startswith("cli.") and name.count(".") == 1} - CLI_SHARED
    commands -= {"cli.options", "cli.shared", "cli.data", "cli.features", "cli.interop"}
    assert {"cli.train", "cli.predict", "cli.serve"} <= commands
    for name, tree in modules():
        if name in commands:
            others = commands - {name}
            assert not [imported for imported in own_imports(tree) for other in others if is_within(imported, other)]


@pytest.mark.parametrize("kind", ["xr_linear", "neighbors", "ensemble", "reranked"])
def test_training_and_serialization_do_not_import_the_model(kind: str) -> None:
    names = [name for name, _ in modules() if is_within(name, f"models.{kind}")]
    assert {f"models.{kind}.{part}" for part in ("model", "serialize")} <= set(names)
    for name, tree in modules():
        if name in (f"models.{kind}.training", f"models.{kind}.serialize"):
            imported = own_imports(tree, for_annotations=False)
            assert not any(is_within(other, f"models.{kind}.model") for other in imported), name


@pytest.mark.parametrize("package", EXTERNAL)
def test_optional_packages_are_imported_only_in_their_layer(package: str) -> None:
    importing = {
        name.partition(".")[0]
        for name, tree in modules()
        if any(is_within(imported, package) for imported in imports(tree))
    }
    assert importing <= EXTERNAL[package]


def run_python(code: str) -> list[str]:
    """Run code in a new interpreter and return the whitespace-separated words that it prints."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.split()


def test_importing_carya_loads_no_heavy_package() -> None:
    loaded = run_python("import sys, carya; print(*sys.modules)")
    assert "carya" in loaded
    assert not {"numpy", "scipy", "sklearn", "torch", "rich", "click", "ray", "starlette"} & set(loaded)


def test_public_names_load_neither_torch_nor_a_web_framework() -> None:
    code = "import sys, carya; [getattr(carya, name) for name in carya.__all__]; print(*sys.modules)"
    loaded = run_python(code)
    assert "carya.transformer.xr_transformer" in loaded
    heavy = {"sklearn", "torch", "transformers", "rich", "click", "ray", "starlette", "uvicorn", "fastapi", "lightgbm"}
    assert not heavy & set(loaded)


def test_pickle_shell_and_eval_are_not_used() -> None:
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile"), name
        for forbidden in ("pickle", "subprocess", "marshal", "shelve", "joblib"):
            assert not any(is_within(imported, forbidden) for imported in imports(tree)), name


def test_no_class_name_is_defined_twice() -> None:
    modules_of = defaultdict(list)
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                modules_of[node.name].append(name)
    assert len(modules_of) > 100
    assert not {name: where for name, where in modules_of.items() if len(where) > 1}


def test_folders_have_at_most_12_modules() -> None:
    sizes: defaultdict[str, int] = defaultdict(int)
    for path in PACKAGE.rglob("*.py"):
        if path.name != "__init__.py":
            sizes[path.parent.relative_to(PACKAGE).as_posix()] += 1
    assert len(sizes) > 15
    assert not {folder: size for folder, size in sizes.items() if size > MAX_MODULES}


def test_every_public_name_has_a_docstring() -> None:
    for name in carya.__all__:
        assert getattr(carya, name).__doc__, name
    for name in carya.metrics.__all__:
        assert getattr(carya.metrics, name).__doc__, name


def test_every_module_has_a_docstring() -> None:
    for name, tree in modules():
        assert ast.get_docstring(tree), name


def test_native_code_uses_python_only_in_its_bindings() -> None:
    sources = list((TESTS.parent / "native").rglob("*.[ch]pp"))
    bindings = [path for path in sources if path.parent.name == "bind"]
    assert any("nanobind" in path.read_text(encoding="utf-8") for path in bindings)
    for path in sources:
        if path not in bindings:
            text = path.read_text(encoding="utf-8")
            assert "nanobind" not in text, path
            assert "Python.h" not in text, path


def test_test_files_do_not_import_each_other() -> None:
    """Shared helpers belong in modules without the prefix ``test_``."""
    files = sorted(TESTS.rglob("*.py"))
    assert len(files) > 40
    violations = [
        f"{path.name} imports {imported}"
        for path in files
        for imported in imports(ast.parse(path.read_text(encoding="utf-8")))
        if imported.startswith("test_")
    ]
    assert not violations
