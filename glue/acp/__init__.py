"""Agents in editors, over standard input and output: the Agent Client Protocol, version 1."""
