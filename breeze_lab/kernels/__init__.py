"""Loops that are compiled for one kind of device."""
