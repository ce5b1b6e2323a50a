"""What changed: diffs, settings of the base, the bundle that the other steps read."""
