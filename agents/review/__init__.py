"""The pull-request review bot."""
