"""The arguments whose values people see, which are checked for blank values."""

from __future__ import annotations

SEEN_ARGUMENTS = {
    **dict.fromkeys(("content", "template_content"), "html"),
    **dict.fromkeys(("subject", "template_subject", "sender_name"), "text"),
    **dict.fromkeys(
        ("template_name", "sender_mail", "reply_to", "to", "messages", "mail_params", "attachment"), "other"
    ),
    # Of a contact: tags show it.
    "name": "other",
}
"""The arguments whose values people see. HTML and text must not be blank, even where the DAG file says so."""
