"""Ensembles of several models."""
