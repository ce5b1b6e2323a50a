"""A Python function becomes a tool: decorator, schema, validation, call."""
