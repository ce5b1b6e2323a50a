"""What is wrong with a change: rules, and a model with tools."""
