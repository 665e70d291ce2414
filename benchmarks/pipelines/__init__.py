"""Processes of the pipeline benchmark."""
