"""Servers for tests: real HTTP on the loopback."""
