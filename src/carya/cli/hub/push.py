"""`carya push`: upload a model to the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path

import click

from carya.cli.commands import argument, command, option
from carya.cli.options.common import PATH, model_argument


@command(
    "push",
    examples=[
        "carya push model/ user/model --license apache-2.0 --language en",
        "carya push model/ user/model --run runs/default --data 'Debian package descriptions'",
    ],
)
@model_argument
@argument("repo_id", metavar="REPOSITORY", help="Repository, such as user/model; created if it does not exist.")
@option("--run", type=PATH, metavar="RUN", help="Recorded run whose metrics are shown in the model card.")
@option("--description", metavar="TEXT", help="Purpose of the model, for the model card.")
@option("--data", metavar="TEXT", help="Name, source and license of the training data, for the model card.")
@option("--license", "license_id", metavar="NAME", help="License of the model, such as apache-2.0.")
@option("--language", metavar="CODE,...", help="Languages of the texts, separated by commas, such as en,de.")
@option("--private", is_flag=True, help="Create a private repository.")
@option("--revision", metavar="NAME", help="Branch to upload to; by default, the main branch.")
def push(
    model: Path,
    repo_id: str,
    run: Path | None,
    description: str | None,
    data: str | None,
    license_id: str | None,
    language: str | None,
    private: bool,
    revision: str | None,
) -> None:
    """Upload a model to the Hugging Face Hub.

    The model card is generated from the model and the options. The access token is read from the environment variable
    HF_TOKEN or from the file written by `hf auth login`. The environment variable HF_ENDPOINT selects a mirror of the
    Hub.
    """
    from carya.hub.repository import push_to_hub
    from carya.report.run import read_run

    recorded = None if run is None else read_run(run).evaluation
    address = push_to_hub(
        model,
        repo_id,
        description=description,
        data=data,
        evaluation=None if recorded is None else recorded["metrics"] | {"rows": recorded["rows"]},
        license=license_id,
        language=None if language is None else [code.strip() for code in language.split(",")],
        private=private,
        revision=revision,
    )
    click.echo(address)
