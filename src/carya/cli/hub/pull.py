"""`carya pull`: download a model from the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path

import click

from carya.cli.commands import argument, command, option
from carya.cli.options.common import PATH, force_option
from carya.cli.shared.outputs import check_model_output


@command("pull", examples=["carya pull user/model -o model/", "carya pull user/model -o model/ --revision v2"])
@argument("repo_id", metavar="REPOSITORY", help="Repository, such as user/model.")
@option("--out", "-o", type=PATH, required=True, metavar="FOLDER", help="Folder to save the model to.")
@option("--revision", metavar="NAME", help="Branch, tag or commit; by default, the main branch.")
@force_option
def pull(repo_id: str, out: Path, revision: str | None, force: bool) -> None:
    """Download a model from the Hugging Face Hub.

    The model is saved to a folder and can be used like any other model. Private repositories require an access token,
    which is read from the environment variable HF_TOKEN or from the file written by `hf auth login`.
    """
    from carya.core.storage import size_on_disk
    from carya.hub.repository import from_pretrained

    check_model_output(out, force=force)
    from_pretrained(repo_id, revision=revision).save(out)
    click.echo(f"{out}: {size_on_disk(out) / 1e6:.1f} MB")
