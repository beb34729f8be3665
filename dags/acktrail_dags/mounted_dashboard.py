"""The dashboard as an app that Airflow mounts: who may read a profile's export DAG may read its pages.

With several profiles each has its pages below its own name, and the first page lists them. Nothing here changes
anything: resets go through Airflow's DAGs and approvals.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import Depends, FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response

from acktrail.errors import AcktrailError
from acktrail_dags.links import pages_path
from acktrail_dags.parameters import DagProfile, dag_profiles
from acktrail_dags.task_inputs import table_run_id, tables_config
from acktrail_dashboard.page_templates import rendered
from acktrail_dashboard.web.application import PAGES, create_app, static_file, with_safe_headers
from acktrail_dashboard.web.pages.runs import newest_plan_run, run_context
from acktrail_dashboard.web.web_page import Visit, WebPage

_EXPORT: Final = "acktrail_export"
"""The DAG whose readers see the pages: it brings everything that they show."""
_RESETS: Final = ("acktrail_reset_offsets", "acktrail_rollback_offsets")
_DAGS: Final = (_EXPORT, "acktrail_reconcile", "acktrail_maintenance", *_RESETS)
_TRIES: Final = 10
"""Each try of a task writes under a run id of its own, and a plan under that of all tries, 0."""
_READS: Final = ["GET", "HEAD"]


def mounted_dashboard() -> FastAPI:
    """The app: of one profile its dashboard, of several a folder for each."""
    profiles = dag_profiles()
    if len(profiles) == 1:
        return _dashboard(profiles[0], is_alone=True)
    folders = {profile.folder: profile for profile in profiles}
    outer = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    guard = [Depends(requires_access_dag("GET"))]

    def listed() -> Response:
        names = {folder: profile.name for folder, profile in folders.items()}
        return HTMLResponse(rendered("profiles.html", {"root": "", "folders": names}))

    def tab(request: Request) -> Response:
        dag_id = request.query_params.get("dag_id", "")
        own = (folder for folder, profile in folders.items() if dag_id in map(profile.named, _DAGS))
        return RedirectResponse(f"{next(own, next(iter(folders)))}/airflow?{urlencode(request.query_params)}")

    outer.add_api_route("/static/{name}", static_file, methods=_READS, response_model=None, dependencies=guard)
    outer.add_api_route("/", listed, methods=_READS, response_model=None, dependencies=guard)
    outer.add_api_route("/airflow", tab, methods=_READS, response_model=None, dependencies=guard)
    for folder, profile in folders.items():
        outer.mount(f"/{folder}", _dashboard(profile))
    outer.middleware("http")(with_safe_headers)
    return _with_login(outer)


def _dashboard(profile: DagProfile, *, is_alone: bool = False) -> FastAPI:
    """The guarded pages of one profile; one that cannot be configured has a page that says why."""
    guard = [Depends(requires_access_dag("GET", param_dag_id=profile.named(_EXPORT)))]
    try:
        tables = tables_config(None, profile.name)
        app = create_app(tables, dependencies=guard, pages=(*PAGES, _tab(profile, is_alone=is_alone)))
    except AcktrailError as error:
        app = _explained(error, guard)
    return _with_login(app)


def _explained(error: AcktrailError, guard: list[Any]) -> FastAPI:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, dependencies=guard)

    def explanation() -> Response:
        return PlainTextResponse(f"{error.message}\n{error.hint}\n", HTTPStatus.SERVICE_UNAVAILABLE)

    app.add_api_route("/{path:path}", explanation, methods=_READS, response_model=None)
    app.middleware("http")(with_safe_headers)
    return app


def _with_login(app: FastAPI) -> FastAPI:
    """Who is not logged in gets Airflow's login in a browser, and 401 elsewhere."""
    otherwise: Any = app.exception_handlers[HTTPException]

    async def to_login(request: Request, error: Exception) -> Response:
        is_browser = "text/html" in request.headers.get("accept", "")
        if is_browser and getattr(error, "status_code", None) == HTTPStatus.UNAUTHORIZED:
            login = get_auth_manager().get_url_login()
            return RedirectResponse(f"{login}?{urlencode({'next': str(request.url)})}")
        response: Response = await otherwise(request, error)
        return response

    app.add_exception_handler(HTTPException, to_login)
    return app


def _tab(profile: DagProfile, *, is_alone: bool) -> WebPage:
    """What the tab of a DAG, a run or a task shows: the rows of that run; of a DAG those of its newest run. `is_alone`:
    there is one profile, and no folder for it."""
    own, outwards = frozenset(map(profile.named, _DAGS)), "../" if is_alone else "../../"
    pages = outwards + pages_path(profile.name)

    def context(visit: Visit) -> Mapping[str, Any]:
        dag_id, run_id = visit.text("dag_id"), visit.text("run_id")
        about = {"dag_id": dag_id, "is_foreign": dag_id not in own, "outer": visit.root + pages}
        if dag_id not in own:
            return {**run_context(visit, ()), **about}
        tries = [table_run_id(dag_id, run_id, number) for number in range(_TRIES + 1)]
        if run_id.startswith("{"):  # a DAG's tab: Airflow fills in what it knows
            newest = visit.open_runs.reconciliation
            tries = newest_plan_run(visit) if dag_id in map(profile.named, _RESETS) else [newest] if newest else []
        return {**run_context(visit, tries), **about}

    return WebPage(path="airflow", title="Run", template="run.html", context=context)
