"""Assets: what the service holds as ``mail://<account>/<what>``, and the tables that are loaded from it.

The account is the id of the Airflow connection, the only name of it that a DAG file knows. Airflow imports this module
wherever an asset with a URI is made: it must stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from airflow.providers.common.compat.openlineage.facet import Dataset
    from airflow.sdk import Asset

SCHEME = "mail"


def campaign_stats_asset(mail_conn_id: str = "mail_default", **extra: Any) -> Asset:
    """The statistics of an account's campaigns: ``mail://mail_default/campaigns/stats``.

    :param mail_conn_id: the connection.
    :param extra: further arguments of ``Asset``, such as ``name`` or ``watchers``.
    """
    return create_asset(account=mail_conn_id, resource="campaigns/stats", **extra)


def transactional_stats_asset(mail_conn_id: str = "mail_default", **extra: Any) -> Asset:
    """The daily statistics of an account's transactional mail: ``mail://mail_default/transactional/stats``."""
    return create_asset(account=mail_conn_id, resource="transactional/stats", **extra)


def campaigns_asset(mail_conn_id: str = "mail_default", **extra: Any) -> Asset:
    """The campaigns of an account: ``mail://mail_default/campaigns``."""
    return create_asset(account=mail_conn_id, resource="campaigns", **extra)


def list_asset(list_name: str, mail_conn_id: str = "mail_default", **extra: Any) -> Asset:
    """A contact list: ``mail://mail_default/lists/News``."""
    return create_asset(account=mail_conn_id, resource=f"lists/{quote(list_name, safe='')}", **extra)


def table_asset(sql_conn_id: str, table: str, **extra: Any) -> Asset:
    """A table under the URI that the database's own provider gives it, such as
    ``postgres://db.example.com:5432/analytics/public/mail_campaign_stats``.

    For use in a task, since it reads the connection: in a DAG file write the URI.

    :param sql_conn_id: the database's connection.
    :param table: the table, perhaps with its schema, as the operators take it.
    """
    from airflow.sdk import Asset

    from airflow_provider_mail._task.sql import sql_hook
    from airflow_provider_mail.lineage import SqlTable

    return Asset(uri=SqlTable(sql_hook(sql_conn_id), table).place().uri, **extra)


def create_asset(*, account: str, resource: str, **extra: Any) -> Asset:
    """Make an asset; what Airflow calls a factory.

    :param account: the connection's id.
    :param resource: the rest of the URI's path, with ``/`` between its parts, which are quoted where they must be.
    """
    from airflow.sdk import Asset

    return Asset(uri=f"{SCHEME}://{quote(account, safe='')}/{resource}", **extra)


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Bring a URI into the one form that an asset has.

    :raises ValueError: when it names no account or nothing in it.
    """
    if not uri.netloc:
        raise ValueError("URI format mail:// must contain an account, which is the id of its connection")
    parts = [part for part in uri.path.split("/") if part]
    if not parts:
        raise ValueError("URI format mail:// must say what of the account: mail://<account>/campaigns/stats")
    if uri.query:
        raise ValueError("URI format mail:// has no query")
    return uri._replace(scheme=SCHEME, path="/" + "/".join(parts))


def convert_asset_to_openlineage(asset: Asset, lineage_context: Any) -> Dataset:
    """The dataset that operators report for the same thing."""
    from airflow.providers.common.compat.openlineage.facet import Dataset

    uri = urlsplit(asset.uri)
    return Dataset(namespace=f"{SCHEME}://{unquote(uri.netloc)}", name=unquote(uri.path.lstrip("/")))
