"""Received events after they were drained: read dead letters again, and erase a person's events."""

from __future__ import annotations

from airflow_provider_mail._task.storage import sql_hook

__all__ = ["erase_events", "replay_dead_letters"]


def erase_events(
    email: str,
    *,
    sql_conn_id: str,
    table: str = "mail_events",
    dead_letters_table: str = "mail_dead_letters",
    inbox_conn_id: str | None = None,
    inbox_table: str | None = None,
    audiences_table: str = "mail_audiences",
) -> dict[str, int]:
    """Delete the events of a recipient: from the inbox, the dead letters and the table of events.

    The person is also taken out of audiences, and out of the memory of who was mailed what (``[mail] memory_conn_id``).

    An event is about the person if its ``Email`` contains the address, or, without an address in ``Email``, if the
    address is anywhere in the event. Surrounding blanks, case and the form of Unicode do not matter. Can be repeated;
    repeat it while the service may still push events of the person. Several erasures may run at once. No dead letters
    may be replayed meanwhile; with an inbox on SQLite, no drain may run meanwhile.

    :param email: the address.
    :param sql_conn_id: the connection to the database of both tables.
    :param table: the table of events. Default: ``mail_events``.
    :param dead_letters_table: the table of dead letters. Default: ``mail_dead_letters``.
    :param inbox_conn_id: the connection to the database of the inbox. Default: ``[mail] inbox_conn_id``.
    :param inbox_table: the table of the inbox. Default: ``[mail] inbox_table``.
    :param audiences_table: the table of audiences, if the database has one. Default: ``mail_audiences``.
    :return: in how many ``audiences`` the person was, how many ``mails`` the memory had, how many ``pushes`` were
        changed, how many ``dead_letters`` were deleted or changed, and how many ``events`` were deleted.
    :raises MailConfigError: there is no inbox.
    :raises ValueError: ``email`` is no address.
    :raises WarehouseError: a table cannot be read, or its rows cannot be deleted.
    """
    from airflow_provider_mail._audience.memory import Memory
    from airflow_provider_mail._audience.people import forget, not_forgotten
    from airflow_provider_mail._audience.store import StateStore
    from airflow_provider_mail.warehouse.errors import WarehouseError
    from airflow_provider_mail.webhook.erasure import erase
    from airflow_provider_mail.webhook.inbox import open_inbox

    inbox = open_inbox(inbox_conn_id, inbox_table)
    hook = sql_hook(sql_conn_id)
    counts = erase(email, inbox, hook, table, dead_letters_table)
    forgotten = forget(StateStore(hook, audiences_table), email)
    if kept := not_forgotten(forgotten):
        reasons = "; ".join(f"{audience} {result}" for audience, result in kept.items())
        raise WarehouseError(f"table {audiences_table}: {reasons}")
    memory = Memory.configured()
    return counts | {"audiences": len(forgotten), "mails": memory.forget(email) if memory else 0}


def replay_dead_letters(
    *, sql_conn_id: str, table: str = "mail_events", dead_letters_table: str = "mail_dead_letters"
) -> dict[str, int]:
    """Read all dead letters again: store the events that can be read now, and delete their letters.

    Can be repeated at any time.

    :param sql_conn_id: the connection to the database of both tables.
    :param table: the table of events. Default: ``mail_events``.
    :param dead_letters_table: the table of dead letters. Default: ``mail_dead_letters``.
    :return: how many dead letters were ``read``, how many events were ``stored``, and how many letters are ``left``.
    :raises WarehouseError: a table cannot be read or loaded.
    """
    from airflow_provider_mail.webhook.drain import replay

    return replay(sql_hook(sql_conn_id), table, dead_letters_table)
