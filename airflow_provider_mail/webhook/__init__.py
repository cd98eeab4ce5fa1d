"""The receiving side of webhooks: an ASGI application and the inbox that keeps each push."""
