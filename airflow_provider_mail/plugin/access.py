"""Airflow's authentication and authorization for every request of the page."""

from __future__ import annotations

import re
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView
from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, HTTPException, Request

from airflow_provider_mail.version_compat import AIRFLOW_V_3_1_PLUS

if AIRFLOW_V_3_1_PLUS:
    authenticated_user: Any = get_user
else:

    async def authenticated_user(request: Request) -> Any:
        """Return the user of a request. Airflow 3.0 accepts a token in the header only, which a link cannot send.

        :raises HTTPException: 401 without a valid token, 403 for one that is none.
        """
        header = re.fullmatch(r"(?i)bearer +(\S+)", request.headers.get("authorization", ""))
        token = header[1] if header else request.cookies.get(COOKIE_NAME_JWT_TOKEN)
        if not token:
            raise HTTPException(401, "Not authenticated")
        by_token: Any = get_user
        return await by_token(token)


def permitted_user(request: Request, user: Any = Depends(authenticated_user)) -> Any:  # noqa: B008
    """Return the user of a request, who needs the permission to view plugins.

    :param request: the request; its state keeps the user.
    :raises HTTPException: 403 without the permission.
    """
    if not get_auth_manager().is_authorized_view(access_view=AccessView.PLUGINS, user=user):
        raise HTTPException(403, "Forbidden")
    request.state.mail_user = user
    return user


def may_read_dag(user: Any, dag_id: str) -> bool:
    """Return whether a user may read a DAG."""
    from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails

    return bool(get_auth_manager().is_authorized_dag(method="GET", details=DagDetails(id=dag_id), user=user))
