"""Checks that misbehave, for the tests of the runner."""
