"""Calibration: probabilities that suggested labels are correct."""
