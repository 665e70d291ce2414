"""Readers for files from untrusted sources; damaged and malicious files raise errors."""
