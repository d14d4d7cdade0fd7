"""Handlers for the routes that store data: batch jobs and feedback."""
