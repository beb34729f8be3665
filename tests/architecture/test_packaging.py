"""The wheel brings everything that an installation needs: packages, types, DAG files, extras with names."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from acktrail.branches import branches

ROOT = Path(__file__).parents[2]
TRUNK = {"acktrail", "acktrail_jobs", "acktrail_expectations", "acktrail_dashboard", "acktrail_dags"}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of the wheel that the sources build."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "content")
    return folder / "content"


def test_the_wheel_brings_the_dag_files(unpacked: Path) -> None:
    """Byte by byte those of the checkout; what `acktrail config dags` prints is their folder in the wheel."""
    probe = "import acktrail.package_data as found; print(found.dags_folder())"
    done = subprocess.run([sys.executable, "-c", probe], cwd=unpacked, check=True, capture_output=True, text=True)
    folder = Path(done.stdout.strip())

    assert folder == unpacked / "acktrail_dags" / "dag_files"
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == {
        file.name: file.read_bytes() for file in (ROOT / "dags").glob("*.py")
    }


def test_the_wheel_brings_templates_and_pages(unpacked: Path) -> None:
    """Style sheet and templates are beside the module that renders them; pages that it reads are the checkout's."""
    pages = {
        "docs/tables.md": "acktrail/format/columns/schemas/tables.md",
        "docs/runbooks.md": "acktrail_dashboard/runbooks.md",
    }
    names = ("templates/report.html", "templates/macros.html", "static/report.css", "static/dashboard.css")
    pages |= {f"dashboards/acktrail_dashboard/{name}": f"acktrail_dashboard/{name}" for name in names}

    assert all((unpacked / own).read_bytes() == (ROOT / source).read_bytes() for source, own in pages.items())


def test_every_package_of_the_wheel_is_typed(unpacked: Path) -> None:
    """Each has its marker, and nothing else is at the top but branches and what is embedded."""
    found = {folder.name for folder in unpacked.iterdir() if not folder.name.endswith(".dist-info")}

    assert found == TRUNK | {"acktrail_embedded"} | {branch.package for branch in branches()}
    assert all((unpacked / package / "py.typed").is_file() for package in found)


def test_pip_can_install_what_uv_installs() -> None:
    """Every extra has a name, `all` holds the others, and no requirement is overridden for uv alone."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]

    assert set(extras) == {"kafka", "tables", "spark", "quality", "airflow", "connect", "dashboard", "all"}
    (whole,) = extras["all"]
    assert set(whole.removeprefix("acktrail[").removesuffix("]").split(",")) == set(extras) - {"all"}
    assert "override-dependencies" not in project["tool"].get("uv", {})
