"""Assets: resources of the service as ``mail://<account>/<resource>``, and the tables that are loaded from them.

The account is the id of the Airflow connection, the only name that a DAG file knows. Airflow imports this module
wherever an asset with a URI is created, so it must be cheap to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from urllib.parse import SplitResult

    from airflow.providers.common.compat.openlineage.facet import Dataset
    from airflow.sdk import Asset

__all__ = [
    "campaign_stats_asset",
    "campaigns_asset",
    "events_asset",
    "list_asset",
    "table_asset",
    "transactional_stats_asset",
]

SCHEME = "mail"


def campaign_stats_asset(mail_conn_id: str = "mail_default", **extra: Any) -> Asset:
    """Return the asset of the statistics of an account's campaigns: ``mail://mail_default/campaigns/stats``.

    :param mail_conn_id: the connection to the service. Default: ``mail_default``.
    :param extra: further arguments of ``Asset``, such as ``name`` or ``watchers``.
    """
    return create_asset(account=mail_conn_id, resource="campaigns/stats", **extra)


def transactional_stats_asset(mail_conn_id: str = "mail_default", **extra: Any) -> Asset:
    """Return the asset of the statistics of an account's transactional mail: ``mail://mail_default/transactional/stats``.

    :param mail_conn_id: the connection to the service. Default: ``mail_default``.
    :param extra: further arguments of ``Asset``, such as ``name`` or ``watchers``.
    """
    return create_asset(account=mail_conn_id, resource="transactional/stats", **extra)


def campaigns_asset(mail_conn_id: str = "mail_default", **extra: Any) -> Asset:
    """Return the asset of the campaigns of an account: ``mail://mail_default/campaigns``.

    :param mail_conn_id: the connection to the service. Default: ``mail_default``.
    :param extra: further arguments of ``Asset``, such as ``name`` or ``watchers``.
    """
    return create_asset(account=mail_conn_id, resource="campaigns", **extra)


def events_asset(mail_conn_id: str = "mail_default", **extra: Any) -> Asset:
    """Return the asset of the events that an account has pushed: ``mail://mail_default/events``.

    :param mail_conn_id: the connection to the service. Default: ``mail_default``.
    :param extra: further arguments of ``Asset``, such as ``name`` or ``watchers``.
    """
    return create_asset(account=mail_conn_id, resource="events", **extra)


def list_asset(list_name: str, mail_conn_id: str = "mail_default", **extra: Any) -> Asset:
    """Return the asset of a contact list: ``mail://mail_default/lists/News``.

    :param list_name: the name of the list.
    :param mail_conn_id: the connection to the service. Default: ``mail_default``.
    :param extra: further arguments of ``Asset``, such as ``name`` or ``watchers``.
    """
    return create_asset(account=mail_conn_id, resource=f"lists/{quote(list_name, safe='')}", **extra)


def table_asset(sql_conn_id: str, table: str, **extra: Any) -> Asset:
    """Return the asset of a table, with the URI of the database's own provider.

    Such a URI is ``postgres://db.example.com:5432/analytics/public/mail_campaign_stats``. Call this in a task, since it
    reads the connection; in a DAG file write the URI.

    :param sql_conn_id: the connection to the database.
    :param table: the table, with its schema if needed, in the same form as for the operators.
    :param extra: further arguments of ``Asset``, such as ``name`` or ``watchers``.
    """
    from airflow.sdk import Asset

    from airflow_provider_mail._task.storage import sql_hook
    from airflow_provider_mail.lineage import SqlTable

    return Asset(uri=SqlTable(sql_hook(sql_conn_id), table).place().uri, **extra)


def create_asset(*, account: str, resource: str, **extra: Any) -> Asset:
    """Create an asset (Airflow's asset factory).

    :param account: the id of the connection.
    :param resource: the path of the URI, with ``/`` between its parts, which are quoted if necessary.
    :param extra: further arguments of ``Asset``.
    """
    from airflow.sdk import Asset

    return Asset(uri=f"{SCHEME}://{quote(account, safe='')}/{resource}", **extra)


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Normalize the URI of an asset (Airflow's URI handler).

    :raises ValueError: the URI has no account or no resource.
    """
    if not uri.netloc:
        raise ValueError("URI format mail:// must contain an account, which is the id of its connection")
    parts = [part for part in uri.path.split("/") if part]
    if not parts:
        raise ValueError("URI format mail:// must contain a resource: mail://<account>/campaigns/stats")
    if uri.query:
        raise ValueError("URI format mail:// must not contain a query")
    return uri._replace(scheme=SCHEME, path="/" + "/".join(parts))


def convert_asset_to_openlineage(asset: Asset, lineage_context: Any) -> Dataset:
    """Return the dataset that operators report for the same resource (Airflow's asset converter).

    :param lineage_context: Airflow's lineage context; not used.
    """
    from airflow.providers.common.compat.openlineage.facet import Dataset

    uri = urlsplit(asset.uri)
    return Dataset(namespace=f"{SCHEME}://{unquote(uri.netloc)}", name=unquote(uri.path.lstrip("/")))
