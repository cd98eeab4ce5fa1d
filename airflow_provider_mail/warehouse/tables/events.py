"""The tables of pushed events (specification, "Events"), and of what could not be read; they hold personal data."""

from __future__ import annotations

from airflow_provider_mail.warehouse.table import BIGINT, INTEGER, JSON, TEXT, TIMESTAMP, Column, Table, text
from airflow_provider_mail.warehouse.tables.columns import CONNECTION

EVENTS = Table(
    comment="Events of mails as the mail service pushed them, each once; personal data",
    key=("mail_conn_id", "event_id"),
    by_day="received_at",
    columns=(
        CONNECTION,
        Column("event_id", text(32), "Digest of what identifies the event: pushed again, it has the same"),
        Column("event_code", TEXT, "What happened: the code of the specification, or one that it does not have"),
        Column("triggered_time", TIMESTAMP, "When it happened", nullable=True),
        Column("submit_time", TIMESTAMP, "When the mail was submitted", nullable=True),
        Column("email", TEXT, "Address of the recipient", nullable=True),
        Column("event_type", TEXT, "Kind of mail, such as transactional, as the service writes it", nullable=True),
        Column("sender_email", TEXT, "Sender address", nullable=True),
        Column("sent_mail_list_name", TEXT, "List that the recipient was taken from", nullable=True),
        Column("unique_msg_id", TEXT, "Identifier of the mail", nullable=True),
        Column("guid", TEXT, "Identifier of the campaign", nullable=True),
        Column("mail_name", TEXT, "Name of the campaign", nullable=True),
        Column("receive_server", TEXT, "Mail server of the recipient", nullable=True),
        Column("ip", TEXT, "Address that the recipient opened or clicked from", nullable=True),
        Column("platform", TEXT, "Operating system there", nullable=True),
        Column("browser_type", TEXT, "Browser or mail program there", nullable=True),
        Column("raw", JSON, "The event with all its fields, also those without a column"),
        Column("received_at", TIMESTAMP, "When the push was received"),
        Column("push_id", BIGINT, "Number of the push in the inbox"),
        Column("push_index", INTEGER, "Position of the event in the push, from 0"),
    ),
    insert_only=True,
    counted_by="event_code",
)

DEAD_LETTERS = Table(
    comment="Pushed events that could not be read, with the reason; personal data",
    key=("mail_conn_id", "letter_id"),
    columns=(
        CONNECTION,
        Column("letter_id", text(32), "Digest of account and text: pushed again, it has the same"),
        Column("reason", TEXT, "Why it could not be read, without its values"),
        Column("raw", TEXT, "The event, or the whole push, as text"),
        Column("received_at", TIMESTAMP, "When the push was received"),
        Column("push_id", BIGINT, "Number of the push in the inbox"),
        Column("push_index", INTEGER, "Position in the push, from 0; null for a whole push", nullable=True),
    ),
    insert_only=True,
    counted_by="reason",
)
