"""Reading files that may come from elsewhere: damaged or malicious ones are refused."""
