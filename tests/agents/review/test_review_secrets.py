"""What counts as a secret, and what does not."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glue import is_secret_name
from glue.agents.review.secrets import MASK, random_looking, redactor

VALUE = "Qw7" + "er1Ty9Ui3Op5As2Df8Gh4Jk6"


@pytest.mark.parametrize(
    "name",
    [
        "GITHUB_TOKEN",
        "OPENAI_API_KEY",
        "DB_PASSWORD",
        "aws_secret_access_key",
        "MY_PAT",
        "DATABASE_URL",
        "accessKey",
        "NPM_AUTH",
        "CI_JOB_JWT",
        "DBPASS",
    ],
)
def test_names_that_say_secret(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    ["PATH", "PWD", "HOME", "SSH_AUTH_SOCK", "LANG", "GITHUB_REPOSITORY", "CI", "GIT_AUTHOR_NAME", "PASSENGER_COUNT"],
)
def test_names_that_do_not(name: str) -> None:
    assert not is_secret_name(name)


def test_only_values_of_eight_characters_and_more_count() -> None:
    watch = redactor({"A_TOKEN": "short", "B_TOKEN": "longenough", "HOME": "/home/somebody"})

    assert watch.redact("short longenough /home/somebody") == f"short {MASK} /home/somebody"


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=9), st.binary(max_size=9))
def test_base64_is_found_at_any_offset(before: bytes, after: bytes) -> None:
    watch = redactor({"A_TOKEN": VALUE})
    text = base64.b64encode(before + VALUE.encode() + after).decode()

    left = watch.redact(f"say {text} now")

    assert MASK in left
    assert len(left) <= len("say  now" + MASK) + 2 * (len(before) + len(after)) + 8


def test_half_of_a_long_secret_is_a_leak_and_half_of_a_word_is_not() -> None:
    watch = redactor({"A_TOKEN": VALUE, "B_PASSWORD": "correct horse battery staple"})

    assert MASK in watch.redact(VALUE[: len(VALUE) // 2 + 2])
    assert MASK not in watch.redact("a battery that is correct")
    assert MASK in watch.redact("correct-horse-battery-staple")


def test_a_key_of_many_lines_is_found_line_by_line() -> None:
    key = "-----BEGIN X-----\n" + "MIIEow1234567890abcdefghij\nZyXwVu0987654321jihgfedcba\n-----END X-----"
    watch = redactor({"DEPLOY_KEY": key})

    assert watch.redact("see ZyXwVu0987654321jihgfedcba there") == f"see {MASK} there"


def test_the_password_of_an_address_is_found_alone() -> None:
    watch = redactor({"DATABASE_URL": "postgres://bob:" + "s3cr3tpass" + "@db.example/x"})

    assert watch.redact("it is s3cr3tpass") == f"it is {MASK}"


@pytest.mark.parametrize(
    "token",
    [
        "deadbeef" * 5,
        "test_create_link_rejects_non_url_string",
        "src/components/NoteListItemEditor/index.tsx",
        "MetricAlertDetectorHandlerFactoryBuilder2",
        "getClientsWithPermissionForResourceV2",
        "IsFeatureEnabledForOrganizationAndProject1",
    ],
)
def test_names_and_commit_ids_are_not_random(token: str) -> None:
    assert not random_looking(token)


@pytest.mark.parametrize("token", ["qX7vT2mB9cK4wR8zL1nD6hJ3pF5s" + "G0yA", "0123456789abcdef0123456789abcdef"])
def test_random_tokens_look_random(token: str) -> None:
    assert random_looking(token)


def test_text_without_secrets_is_left_alone() -> None:
    watch = redactor({"A_TOKEN": VALUE})
    text = "The `cache` of load() is shared; see tests/test_app.py:12 and commit " + "a1b2c3d4e5" * 4 + "."

    assert watch.redact(text) == text


def test_long_names_with_a_keys_prefix_are_names() -> None:
    text = "The constraint pk_user_accounts_identifier_unique and hf_transformer_model_loader are new."

    assert redactor({}).redact(text) == text


def test_a_token_too_random_to_be_a_word_is_masked() -> None:
    token = "qX7vT2mB9cK4wR8zL1nD6hJ3pF5s" + "G0yA"

    assert redactor({}).redact(token) == MASK


@pytest.mark.parametrize("shape", ["a85", "b85", "utf-16-le", "utf-16-be", "tags"])
def test_rare_encodings_are_found_too(shape: str) -> None:
    watch = redactor({"A_TOKEN": VALUE})
    encoders: dict[str, Callable[[bytes], bytes]] = {"a85": base64.a85encode, "b85": base64.b85encode}
    if shape in encoders:
        text = encoders[shape](VALUE.encode()).decode()
    elif shape == "tags":
        text = "<b></b>".join(VALUE)
    else:
        text = base64.b64encode(VALUE.encode(shape)).decode()

    assert MASK in watch.redact(f"`x = '{text}'`")


@pytest.mark.parametrize("code", [0xDCFF, 0xD800])
def test_secret_that_is_no_text_is_looked_for_all_the_same(code: int) -> None:
    watch = redactor({"A_TOKEN": f"abcdef{chr(code)}0123456789"})

    assert watch.redact("say abcdef0123456789") == f"say {MASK}"
