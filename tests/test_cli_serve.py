"""Tests for the arguments of `carya serve`; the server itself is tested in tests/test_serve_processes.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from carya.cli.serve import folders_by_name, read_tokens, require_packages
from carya.errors import InputError, MissingExtraError

from command_line import run


def test_models_have_names() -> None:
    assert folders_by_name(("a/b c=d/", "x=y")) == {"b-c-d": Path("a/b c=d/"), "x": Path("y")}
    with pytest.raises(InputError, match=r"^Two models are named 'm'. Pass a name for each, as in m-2=n/m$"):
        folders_by_name(("m", "n/m"))


def test_token_files(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("one\n\n two \n")
    assert read_tokens(path) == ("one", "two")
    with pytest.raises(InputError, match="No such file or directory"):
        read_tokens(tmp_path / "none")
    path.write_text("\n")
    with pytest.raises(InputError, match=r"contains no tokens\. At least one is required"):
        read_tokens(path)
    path.write_text("é")
    with pytest.raises(InputError, match="tokens must consist of ASCII characters"):
        read_tokens(path)


def test_a_missing_package_is_an_error_with_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)  # makes `import uvicorn` fail
    with pytest.raises(
        MissingExtraError, match=r"^carya serve requires uvicorn. Install it with: pip install 'carya\["
    ):
        require_packages()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere"),
        (["model", "--port", "65536"], "--port must be an integer between 0 and 65535, got 65536."),
        (["model", "--workers", "0"], "--workers must be an integer between 1 and 256, got 0."),
        (["model", "--max-texts", "0"], "--max-texts must be an integer >= 1, got 0."),
        (["model", "--max-text", "5"], "Unknown option '--max-text'. Did you mean '--max-texts'?"),
        (["model", "--token-file", "nowhere"], "nowhere: No such file or directory"),
        ([], "Missing argument 'MODEL...'. Run 'carya serve --help' for usage."),
    ],
)
def test_errors_print_one_line_and_exit_with_code_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = run("serve", *arguments, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
