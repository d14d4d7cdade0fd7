"""Inputs, outputs and reports shared by several commands."""
