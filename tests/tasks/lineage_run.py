"""Assets as the dag-processor leaves them."""

from __future__ import annotations

from airflow.sdk import DAG

from tests.support.dags import AIRFLOW_VERSION


def activate_assets(dag: DAG) -> None:
    """Do what the dag-processor does with inlets and outlets, which `dag.test()` of Airflow 3.0 wants done."""
    from airflow.models.asset import AssetActive, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete, or_, select

    assets = {asset.uri: asset for task in dag.tasks for asset in (*task.inlets, *task.outlets)}
    names = [asset.name for asset in assets.values()]
    with create_session() as session:
        # One that another test has under another name, or another address, would keep ours from being active.
        session.execute(delete(AssetActive).where(or_(AssetActive.uri.in_(assets), AssetActive.name.in_(names))))
        if AIRFLOW_VERSION >= (3, 1):
            return
        known = {tuple(row) for row in session.execute(select(AssetModel.name, AssetModel.uri))}
        for uri, asset in assets.items():
            if (asset.name, uri) not in known:
                session.add(AssetModel(name=asset.name, uri=uri, group=asset.group))
        session.flush()
        session.add_all(AssetActive(name=asset.name, uri=uri) for uri, asset in assets.items())
