"""Finding AWS credentials and the region in variables and files."""

from __future__ import annotations

from pathlib import Path

from glue.providers.aws import Credentials, find_credentials, find_region


def test_credentials_in_variables_win_over_files(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = file\naws_secret_access_key = x\n"
    )
    files = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials")}

    variables = find_credentials(
        {**files, "AWS_ACCESS_KEY_ID": "variable", "AWS_SECRET_ACCESS_KEY": "y"}
    )
    file = find_credentials(files)

    assert variables == Credentials("variable", "y")
    assert file == Credentials("file", "x")


def test_aws_profile_selects_the_section_of_the_file(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        "[work]\naws_access_key_id = a\naws_secret_access_key = b%c\naws_session_token = d\n"
    )
    (tmp_path / ".aws/config").write_text(
        "[profile work]\nregion = eu-west-1\n[default]\nregion = us-west-2\n"
    )
    environ = {"HOME": str(tmp_path), "AWS_PROFILE": "work"}

    assert find_credentials(environ) == Credentials("a", "b%c", "d")
    assert find_region(environ) == "eu-west-1"
    assert find_region({"HOME": str(tmp_path)}) == "us-west-2"
    assert find_region({**environ, "AWS_DEFAULT_REGION": "ap-south-1"}) == "ap-south-1"


def test_no_variable_and_no_file_means_no_credentials(tmp_path: Path) -> None:
    (tmp_path / "broken").write_bytes(b"\xff[[not a config")

    assert find_credentials({}) is None
    assert find_credentials({"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "broken")}) is None
    assert find_credentials({"HOME": str(tmp_path), "AWS_PROFILE": "none"}) is None
    assert find_region({}) == ""
