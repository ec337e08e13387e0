"""Metrics, significance, calibration, predictions and reports."""
