"""The protocol: what a request is, how it is sent, retried and parsed. Private."""
