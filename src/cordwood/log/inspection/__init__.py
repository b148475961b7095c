"""Checking a log and counting its records. Changes nothing."""
