"""Providers by name: rows of data, one file per wire, retries and failover."""
