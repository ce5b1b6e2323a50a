"""Tools made from Python functions: the decorator, schemas, validation, calls and hooks."""
