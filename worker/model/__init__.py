"""Moondream 2 as functions over weights."""
