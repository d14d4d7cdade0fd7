"""Hyperparameter tuning: search for the settings with the best metric on held-out training rows."""
