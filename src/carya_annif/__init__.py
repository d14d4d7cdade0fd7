"""Carya as a backend of Annif (https://annif.org).

``python -m carya_annif`` runs the ``annif`` command with the ``carya`` backend. Programs that use Annif as a library
call :func:`register`.
"""

from __future__ import annotations

BACKEND_ID = "carya"


def register() -> None:
    """Register the ``carya`` backend with Annif."""
    import annif.backend

    annif.backend._backend_fns.setdefault(BACKEND_ID, get_backend)  # Annif has no public API for this


def get_backend() -> type:
    """Return the class of the backend."""
    from carya_annif.backend import CaryaBackend

    return CaryaBackend
