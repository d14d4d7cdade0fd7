"""`python -m carya`: the `carya` command."""

from __future__ import annotations

from carya.cli import main

if __name__ == "__main__":
    main()
