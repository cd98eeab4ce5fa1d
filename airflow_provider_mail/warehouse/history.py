"""History of a part of a table: from when to when each row was in it.

A row is in the part from the first complete reading that has it until the first later one that does not. The times of
all readings are kept, so a reading that is loaded after a later one changes the history as if it had been loaded first.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider_mail.warehouse.table import Table, TableName

VALID_FROM, VALID_TO = "valid_from", "valid_to"
READ_AT, ROWS = "read_at", "contacts"


@dataclass(frozen=True)
class History:
    """The history of what one load reads, which must be complete.

    :param intervals: the declared table with the loaded table's key and ``valid_from`` as key, and ``valid_to``.
    :param readings: the declared table of readings: the columns of ``where``, the time and the number of rows.
    :param name: the name of the table of intervals in the database.
    :param readings_name: the name of the table of readings.
    :param where: the part of the table that is read whole, as values by column.
    :param observed_at: the time at which reading began, with a zone.
    """

    intervals: Table
    readings: Table
    name: TableName
    readings_name: TableName
    where: Mapping[str, Any]
    observed_at: datetime.datetime
