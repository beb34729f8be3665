"""The wheel brings everything that an installation needs: packages, types, DAG files, extras with names. The trunk
works without each branch: in a copy of the checkout in which its folder and its tests are not."""

from __future__ import annotations

import os
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest
from drivers.own_process import finished, printed

from acktrail.branches import ENTRY_POINT, registered

ROOT = Path(__file__).parents[2]
TRUNK = {
    "acktrail",
    "acktrail_connect",
    "acktrail_jobs",
    "acktrail_expectations",
    "acktrail_dashboard",
    "acktrail_dags",
    "acktrail_provider",
}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of the wheel that the sources build."""
    folder = tmp_path_factory.mktemp("wheel")
    printed(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "content")
    return folder / "content"


def test_the_wheel_brings_the_dag_files(unpacked: Path) -> None:
    """Byte by byte those of the checkout; what `acktrail config dags` prints is their folder in the wheel."""
    probe = "import acktrail.package_data as found; print(found.dags_folder())"
    folder = Path(printed(sys.executable, "-c", probe, cwd=unpacked).strip())

    assert folder == unpacked / "acktrail_dags" / "dag_files"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        file.name: file.read_bytes() for file in (ROOT / "dags").glob("*.py")
    }


def test_the_wheel_brings_templates_and_pages(unpacked: Path) -> None:
    """Style sheet and templates are beside the module that renders them; pages that it reads are the checkout's."""
    schemas = "acktrail/format/columns/schemas/tables.toml"
    pages = {schemas: schemas, "docs/reference/runbooks.md": "acktrail_dashboard/runbooks.md"}
    names = ("templates/report.html", "templates/macros.html", "static/report.css", "static/dashboard.css")
    pages |= {f"dashboards/acktrail_dashboard/{name}": f"acktrail_dashboard/{name}" for name in names}

    assert all((unpacked / own).read_bytes() == (ROOT / source).read_bytes() for source, own in pages.items())


def test_the_wheel_brings_what_runs_it_on_a_machine(unpacked: Path, tmp_path: Path) -> None:
    """`acktrail config files` of the wheel copies units, rules and boards byte by byte, and overwrites nothing."""
    command = "from acktrail.cli.main import main; main()"
    copied = [sys.executable, "-c", command, "config", "files", "--out", str(tmp_path)]
    printed(*copied, cwd=unpacked)
    sources = {"services": "deploy/services", **{name: f"dashboards/{name}" for name in ("prometheus", "grafana")}}
    for name, source in sources.items():
        found, own = files_below(tmp_path / name), files_below(ROOT / source)
        assert found == own
    again = finished(*copied, cwd=unpacked)
    assert again.returncode == 3
    assert "is there already" in again.stderr


def files_below(folder: Path) -> dict[str, bytes]:
    """The content of each file, by its path in the folder."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_every_package_of_the_wheel_is_typed(unpacked: Path) -> None:
    """Each has its marker, and nothing else is at the top but extras."""
    found = {folder.name for folder in unpacked.iterdir() if not folder.name.endswith(".dist-info")}

    assert found == TRUNK | {folder.name for folder in (ROOT / "extras").glob("acktrail_*")}
    assert all((unpacked / package / "py.typed").is_file() for package in found)


def test_pip_can_install_what_uv_installs() -> None:
    """Every extra has a name, `all` holds the others, and no requirement is overridden for uv alone."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]

    edges = {"kafka", "tables", "spark", "quality", "airflow", "connect", "dashboard", "mcp", "demo", "redrive"}
    assert set(extras) == edges | {"all"}
    (whole,) = extras["all"]
    assert set(whole.removeprefix("acktrail[").removesuffix("]").split(",")) == set(extras) - {"all"}
    assert "override-dependencies" not in project["tool"].get("uv", {})


PLACES: Final = (".", "connectors", "extras", "dags", "dashboards", "expectations", "spark_jobs", "simulation")
TESTS_WHERE_NAMED: Final = {
    "copied_logs": ("tests/cli/test_main.py",),
    "expansion": (
        "tests/change/plan/test_reset_plan.py",
        "tests/view/test_table_metrics.py::test_a_scrape_follows_the_tables",
    ),
}
"""Of each branch: tests of the trunk where it is asked for, and is not there. All tests: `make test-trunk`."""
COMMAND_OF: Final = {"copied_logs": "decode", "demo": "demo", "expansion": "expan", "migration": "migration"}
"""What the help says only where the branch is there."""
HELP: Final = "The help:"
ALONE: Final = f"""
import sys, pytest
sys.path = [place for place in sys.path if place not in {[str(ROOT / place) for place in PLACES]}]
from acktrail.branches import ENTRY_POINT, branches, registered
gone, *tests = sys.argv[1:]
assert gone not in [branch.package for branch in branches()]
assert not pytest.main(["-qp", "no:cacheprovider", "-m", "not broker and not spark and not airflow", *tests])
print("{HELP}")
from acktrail.cli.main import _run
for words in ([], ["change", "plan", "reset"], ["doctor"]):
    assert _run([*words, "--help"]) == 0
"""


EXTRAS: Final = sorted(name for name in registered(ENTRY_POINT) if (ROOT / f"extras/acktrail_{name}").is_dir())


@pytest.mark.parametrize(
    "branch", [name if name == "expansion" else pytest.param(name, marks=pytest.mark.full) for name in EXTRAS]
)
def test_the_trunk_works_without_the_branch(branch: str, tmp_path: Path) -> None:
    """The help names no command of the branch, and quick tests pass. That no module of the trunk imports one of a
    branch, and no branch another, is a contract."""
    folder, package = tmp_path / "checkout", f"acktrail_{branch}"
    made = (".git", ".venv", ".uv", ".test-java", ".demo", ".image", "dist", "site", ".*_cache", ".hypothesis")
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*made, package))
    shutil.rmtree(folder / "tests/extras" / branch)
    places = os.pathsep.join(str(folder / place) for place in PLACES)
    tests = ("tests/model/test_quality_rules.py", *TESTS_WHERE_NAMED.get(branch, ()))
    said = printed(sys.executable, "-c", ALONE, package, *tests, cwd=folder, env={**os.environ, "PYTHONPATH": places})

    assert COMMAND_OF.get(branch, "Traceback") not in said.partition(HELP)[2]
