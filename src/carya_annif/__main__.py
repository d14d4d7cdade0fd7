"""`python -m carya_annif`: the `annif` command with the `carya` backend."""

from __future__ import annotations

import sys

import carya_annif


def main() -> None:
    """Run the `annif` command with the `carya` backend."""
    try:
        from annif.cli import cli
    except ModuleNotFoundError as error:
        if error.name != "annif":
            raise
        sys.exit("carya_annif requires Annif. Install it with: pip install annif")
    carya_annif.register()
    cli(prog_name="annif")


if __name__ == "__main__":
    main()
