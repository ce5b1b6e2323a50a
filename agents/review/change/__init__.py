"""The change under review: its diff, the settings of the base, the bundle that the other steps read."""
