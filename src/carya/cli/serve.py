"""`carya serve`: a model as an HTTP service."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from carya.cli.commands import lazily
from carya.cli.options.parameter_flags import flags_of, values_of
from carya.errors import InputError

_PACKAGES = ("starlette", "msgspec", "uvicorn", "httptools", "uvloop")


def _serve(
    models: Annotated[
        list[str], typer.Argument(help="Folders of models of texts, or name=folder.", show_default=False)
    ],
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 is every one of this machine.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(help="The port; 0 takes a free one.", min=0, max=65535)] = 8000,
    workers: Annotated[int, typer.Option(help="Processes; they share the models' memory.", min=1, max=256)] = 1,
    token_file: Annotated[
        Path | None, typer.Option(help="A file of tokens, one a line; requests must bear one of them.")
    ] = None,
    **given: Any,
) -> None:
    """Serve models over HTTP: a JSON API (/docs), Annif's API (/v1/projects), and a page to look at them (/).

    A model that is saved to its folder again is taken over without a failed request. Ctrl-C and SIGTERM end the server
    when what has begun is answered; SIGHUP looks for new versions at once. The log is a line of JSON an event on
    standard error. Limits are for each worker.

    Examples:

      carya serve model/

      carya serve english=en/ finnish=fi/ --port 9000 --workers 2

      carya serve model/ --host 0.0.0.0 --token-file tokens.txt --max-texts 100

      curl -s http://127.0.0.1:8000/v1/suggest --json '{"text": "a fast web server", "top_k": 3}'
    """
    need()
    from carya.serve.server import Plan, serve
    from carya.serve.settings import Settings

    settings = values_of(Settings, given)
    if token_file is not None:
        settings["tokens"] = read_tokens(token_file)
    serve(Plan(named(models), settings), host=host, port=port, workers=workers)


def need() -> None:
    """Raise InputError with the line that installs what is missing."""
    import importlib.util

    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"carya serve needs {', '.join(missing)}; pip install 'carya[serve]'")


def named(models: list[str]) -> dict[str, Path]:
    """The folders of models by name.

    >>> named(["models/pets/", "more=other"])
    {'pets': PosixPath('models/pets'), 'more': PosixPath('other')}
    """
    found: dict[str, Path] = {}
    for given in models:
        name, separator, folder = given.partition("=")
        place = Path(folder if separator else given)
        if not separator or not re.fullmatch(r"[A-Za-z0-9._-]+", name):
            place = Path(given)
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", place.resolve().name).strip("-") or "model"
        if name in found:
            raise InputError(f"two models are called {name!r}: give each a name, as in {name}-2={place}")
        found[name] = place
    return found


def read_tokens(path: Path) -> tuple[str, ...]:
    """The tokens in a file."""
    try:
        lines = path.read_text(encoding="ascii").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "tokens must be of ASCII characters"
        raise InputError(f"{path}: {reason}") from None
    tokens = tuple(line.strip() for line in lines if line.strip())
    if not tokens:
        raise InputError(f"{path}: there is no token in it")
    return tokens


def _command() -> Callable[..., None]:
    """The command with a flag for every setting."""
    from carya.serve.settings import Settings

    own = inspect.signature(_serve, eval_str=True)
    mine = [one for one in own.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]

    def command(**arguments: Any) -> None:
        _serve(**arguments)

    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in mine] + flags_of(Settings=Settings)
    command.__doc__ = _serve.__doc__
    vars(command)["__signature__"] = own.replace(parameters=parameters)
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


@lazily(_command)
def serve() -> None:
    """Serve models over HTTP: a JSON API, Annif's API, and a page to look at them."""
