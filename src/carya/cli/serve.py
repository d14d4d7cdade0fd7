"""`carya serve`: an HTTP server for saved models."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from carya.cli.commands import Option, argument, command, option
from carya.cli.options.common import PATH
from carya.cli.options.parameter_flags import given_parameters, parameter_options
from carya.cli.options.rule_type import RuleType
from carya.core.rules import Integer
from carya.errors import InputError

if TYPE_CHECKING:
    from carya.serve.settings import ServerSettings

_PACKAGES = ("starlette", "msgspec", "uvicorn", "httptools", "uvloop")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def _settings_class() -> type[ServerSettings]:
    from carya.serve.settings import ServerSettings

    return ServerSettings


def _setting_options() -> list[Option]:
    return parameter_options([_settings_class()], {"other": "Limits and logging"})


@command(
    "serve",
    generate_options=_setting_options,
    examples=[
        "carya serve model/",
        "carya serve english=en/ finnish=fi/ --port 9000 --workers 2",
        "carya serve model/ --host 0.0.0.0 --token-file tokens.txt --max-texts 100",
        "carya serve parts/top --part http://a:8000,http://b:8000 --part http://c:8000",
        """curl -s http://127.0.0.1:8000/v1/suggest --json '{"text": "a fast web server", "top_k": 3}'""",
    ],
)
@argument(
    "models",
    nargs=-1,
    required=True,
    metavar="MODEL...",
    help="Folders of models or of parts of split models; NAME=FOLDER sets the name.",
)
@option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    heading="Server",
    metavar="ADDRESS",
    help="Address to listen on; use 0.0.0.0 to listen on all network interfaces.",
)
@option(
    "--port",
    type=RuleType(Integer(0, 65535)),
    default=8000,
    show_default=True,
    heading="Server",
    metavar="INTEGER",
    help="Port to listen on; 0 selects a free port.",
)
@option(
    "--workers",
    type=RuleType(Integer(1, 256)),
    default=1,
    show_default=True,
    heading="Server",
    metavar="INTEGER",
    help="Number of worker processes, which share one copy of the models in memory.",
)
@option(
    "--token-file",
    type=PATH,
    heading="Server",
    metavar="FILE",
    help="File with the accepted bearer tokens, one per line; authentication is disabled by default.",
)
@option(
    "--part",
    "parts",
    multiple=True,
    heading="Parts of a split model",
    metavar="URLS",
    help="Comma-separated URLs of the servers that serve one part. Repeat the option for each part, in the order of "
    "the part numbers. By default, the part folders next to the top folder are used.",
)
@option(
    "--parts-file",
    type=PATH,
    heading="Parts of a split model",
    metavar="FILE",
    help="File with the URLs of the servers, one line per part; an alternative to --part.",
)
@option(
    "--part-token-file",
    type=PATH,
    heading="Parts of a split model",
    metavar="FILE",
    help="File whose first line is the bearer token for the servers that serve the parts.",
)
@click.pass_context
def serve(
    context: click.Context,
    /,
    models: tuple[str, ...],
    host: str,
    port: int,
    workers: int,
    token_file: Path | None,
    parts: tuple[str, ...],
    parts_file: Path | None,
    part_token_file: Path | None,
    **_settings: Any,
) -> None:
    """Serve models over HTTP, with a JSON API and an explorer.

    The explorer is at /, the API documentation at /docs, and Annif's API at /v1/projects. Saving a new version to the
    same folder replaces the served model without failed requests; after SIGHUP, the server checks for new versions
    immediately. Ctrl-C and SIGTERM stop the server after all requests in progress are complete. The log on standard
    error contains one line of JSON per event. Limits apply to each worker separately. Models that are larger than
    memory can be split with `carya split` and served by several machines.
    """
    require_packages()
    from carya.serve.server import serve as run_server

    settings = given_parameters(context, _settings_class())
    if token_file is not None:
        settings["tokens"] = read_tokens(token_file)
    if parts and parts_file is not None:
        raise InputError("Pass either --part or --parts-file, not both.")
    if parts or parts_file is not None:
        settings["parts"] = parts if parts_file is None else read_lines(parts_file, "URLs")
    if part_token_file is not None:
        settings["part_token"] = read_tokens(part_token_file)[0]
    run_server(folders_by_name(models), _settings_class()(**settings), host=host, port=port, workers=workers)


def require_packages() -> None:
    """Raise MissingExtraError if a package from the `serve` extra is not installed, or InputError on Windows."""
    if sys.platform == "win32":
        raise InputError(
            "carya serve requires Linux or macOS. On Windows, use the Windows Subsystem for Linux, or pass the result "
            "of carya.serve.app.create_app to another ASGI server."
        )
    from carya.core.extras import require

    for package in _PACKAGES:
        require(package, extra="serve", purpose="carya serve")


def folders_by_name(models: tuple[str, ...]) -> dict[str, Path]:
    """Return the model folders by name; by default, a model is named after its folder.

    >>> {name: folder.as_posix() for name, folder in folders_by_name(("models/pets/", "more=other")).items()}
    {'pets': 'models/pets', 'more': 'other'}
    """
    folders: dict[str, Path] = {}
    for model in models:
        name, separator, path = model.partition("=")
        folder = Path(path)
        if not separator or not _NAME.fullmatch(name):
            folder = Path(model)
            name = "-".join(_NAME.findall(folder.resolve().name)).strip("-") or "model"
        if name in folders:
            raise InputError(f"Two models are named {name!r}. Pass a name for each, as in {name}-2={folder}")
        folders[name] = folder
    return folders


def read_tokens(path: Path) -> tuple[str, ...]:
    """Return the tokens in a file, one per line."""
    return read_lines(path, "tokens")


def read_lines(path: Path, content: str) -> tuple[str, ...]:
    """Return the nonempty lines of a file; `content` describes them in error messages."""
    try:
        lines = path.read_text(encoding="ascii").split("\n")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: {content} must consist of ASCII characters.") from None
    found = tuple(line.strip() for line in lines if line.strip())
    if not found:
        raise InputError(f"{path} contains no {content}. At least one is required; write one per line.")
    return found
