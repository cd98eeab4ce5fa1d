"""Policy: what needs several requests, written once for both clients. No I/O."""
