"""Serve models over HTTP: a JSON API, Annif's REST API, and the explorer page.

``carya serve model/`` starts a server; :func:`carya.serve.app.create_app` returns the ASGI application for use with
another ASGI server. Install the dependencies with ``pip install 'carya[serve]'``.
"""
