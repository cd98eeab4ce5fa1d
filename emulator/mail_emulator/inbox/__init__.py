"""The inbox: web pages that show the mail and what happened to it, and its forwarding to an SMTP server."""
