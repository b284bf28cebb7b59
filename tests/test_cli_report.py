import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from fastdime.cli_report import report
from fastdime.errors import InputError
from support.audits import Plan, make_audit

app = typer.Typer()
app.command()(report)


def test_a_report_is_written_and_told(tmp_path: Path) -> None:
    run = make_audit(tmp_path, Plan(extras=False))
    done = CliRunner().invoke(app, [str(run), "--limit", "2", "--json"])
    assert done.exit_code == 0, done.output
    path = run / "report.html"
    told = {"report": str(path), "bytes": path.stat().st_size, "shown": 2, "images": 8, "missing_pictures": 0}
    assert json.loads(done.stdout) == told
    done = CliRunner().invoke(app, [str(run), "--out", str(tmp_path / "a" / "page.html")])
    assert done.stdout.startswith(f"report            {tmp_path}/a/page.html\n")
    assert (tmp_path / "a" / "page.html").is_file()


def test_a_wrong_folder_is_an_error_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"got no audit\.json in it"):
        CliRunner().invoke(app, [str(tmp_path)], catch_exceptions=False)
    assert CliRunner().invoke(app, [str(tmp_path), "--limit", "0"]).exit_code == 2
