"""One run: ask the model, call the tools it names, end well."""
