"""Checking and counting what is in a log. Changes nothing."""
