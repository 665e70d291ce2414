"""Reading files that may be damaged, malicious, or cut off while they are mapped."""
