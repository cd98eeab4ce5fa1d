"""The receiving side of webhooks: an ASGI application and the inbox that keeps each push."""

DEFAULT_TABLE = "mail_inbox"
"""The table of the inbox, unless another one is configured."""
