"""A model as an HTTP service: a JSON API, Annif's API, and a page to look at the model.

``carya serve model/`` is all of it; :func:`carya.serve.app.create_app` gives the ASGI application alone. What it needs
comes with ``pip install 'carya[serve]'``.
"""
