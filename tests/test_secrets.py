"""Tests of the names and shapes of secrets, of the mask and of the redactor."""

from __future__ import annotations

import base64
import codecs
import json
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glue.secrets import (
    MASK,
    Redactor,
    find_secrets,
    is_random_looking,
    is_secret_name,
    mask_secrets,
    mask_values,
    name_secrets,
)

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
def test_variables_with_these_names_hold_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "PWD",
        "HOME",
        "SSH_AUTH_SOCK",
        "LANG",
        "GITHUB_REPOSITORY",
        "CI",
        "GIT_AUTHOR_NAME",
        "PASSENGER_COUNT",
    ],
)
def test_variables_with_these_names_hold_no_secrets(name: str) -> None:
    assert not is_secret_name(name)


LETTERS = "Q7wE3rT9yU1iO5pA8sD2fG6hJ4kL0zXcVbNmQwErTy"


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("AKIA" + "Q7WE3RT9YU1IO5PA", "an AWS access key"),
        ("AKIA" + "Q7WE3RT9YU1IO5P", ""),  # shorter than every real one
        ("npm_" + LETTERS[:36], "an npm token"),
        ("npm_" + LETTERS[:35], ""),
        ("ghp_" + LETTERS[:36], "a GitHub token"),
        ("SG." + LETTERS[:20] + "." + LETTERS[:20], "a SendGrid key"),
        ("rk_live_" + LETTERS[:20], "a live Stripe key"),
        ("rk_test_" + LETTERS[:20], ""),  # has no value for a thief
        ("eyJ" + LETTERS[:20] + "." + LETTERS[:20], ""),
        ("https://hooks.slack" + ".com/services/T0AAAA/B0AAAA/" + LETTERS[:24], "a Slack webhook"),
        ("-----BEGIN " + "PRIVATE KEY-----", "a private key"),
    ],
)
def test_only_a_certain_key_is_named_but_each_form_of_a_key_is_found(key: str, name: str) -> None:
    assert name_secrets(f"key = '{key}'") == [name] * bool(name)
    assert find_secrets(f"key = '{key}'") != []


def test_keys_are_named_in_the_order_of_the_text_even_after_the_word_bearer() -> None:
    npm, gitlab = "npm_" + LETTERS[:36], "glpat-" + LETTERS[:20]

    assert name_secrets(f"Bearer {gitlab}\n{npm}") == ["a GitLab token", "an npm token"]
    assert name_secrets("nothing of this kind, pk_user_accounts_identifier_unique") == []


def test_the_repr_of_a_redactor_does_not_contain_its_secrets() -> None:
    assert repr(Redactor.from_environment({"A_TOKEN": VALUE})) == "Redactor(mask='***')"


@pytest.mark.parametrize("gap", [3, 20, 35])
def test_a_well_known_key_with_a_hidden_character_is_redacted_completely(gap: int) -> None:
    key = "ghp_" + LETTERS[:36]
    hidden = f"{key[:gap]}\u200b{key[gap:]}"
    escaped = f"{key[:gap]}%{ord(key[gap]):02x}{key[gap + 1 :]}"
    redactor = Redactor(mask="#")

    assert redactor.redact(f"%41 ({hidden})") == "%41 (#)"
    assert redactor.redact(f"%41 ({escaped})") == "%41 (#)"


def test_repetitions_of_a_secret_that_share_characters_are_redacted_completely() -> None:
    redactor = Redactor.from_environment({}, "aaaaaaaaa")

    assert redactor.redact_values("aaaaaaaaaa") == "***"


def test_the_end_of_a_long_secret_is_redacted_from_twelve_characters_on() -> None:
    redactor = Redactor.from_environment({"A_TOKEN": VALUE})

    assert redactor.redact_values(f"see {VALUE[-12:]}") == "see ***"
    assert redactor.redact_values(f"see {VALUE[-11:]}") == f"see {VALUE[-11:]}"
    assert redactor.redact_values(VALUE[:11]) == VALUE[:11]


def test_parts_are_redacted_if_a_secret_has_twenty_letters_and_digits() -> None:
    for secret, is_found in ((f"{VALUE[:19]}-", False), (VALUE[:20], True)):
        redactor = Redactor.from_environment({}, secret)

        assert (redactor.redact_values(VALUE[:12]) == "***") is is_found


@pytest.mark.parametrize(
    ("encode", "known"),
    [(base64.b32encode, 36), (base64.a85encode, 25), (base64.b85encode, 25)],
)
def test_an_encoded_secret_is_found_in_front_of_further_bytes(
    encode: Callable[[bytes], bytes], known: int
) -> None:
    secret = WORDS[:23]  # its last bytes share a group of characters with the bytes after it
    redactor = Redactor.from_environment({}, secret)
    text = encode(secret.encode() + b"\xff" * 12).decode()

    hidden = redactor.redact_values(text)

    start, mask, end = hidden.partition("***")
    assert mask
    assert not any(map(str.isalnum, start))
    assert "".join(filter(str.isalnum, end)) == "".join(filter(str.isalnum, text[known:]))


def test_values_below_eight_characters_are_not_redacted() -> None:
    redactor = Redactor.from_environment(
        {"A_TOKEN": "short", "B_TOKEN": "longenough", "HOME": "/home/somebody"}
    )

    assert redactor.redact("short longenough /home/somebody") == f"short {MASK} /home/somebody"


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=9), st.binary(max_size=9))
def test_base64_is_found_at_any_offset(before: bytes, after: bytes) -> None:
    redactor = Redactor.from_environment({"A_TOKEN": VALUE})
    text = base64.b64encode(before + VALUE.encode() + after).decode()

    left = redactor.redact(f"say {text} now")

    assert MASK in left
    assert len(left) <= len("say  now" + MASK) + 2 * (len(before) + len(after)) + 8


def test_half_of_a_random_secret_is_redacted_but_not_words_of_a_passphrase() -> None:
    redactor = Redactor.from_environment(
        {"A_TOKEN": VALUE, "B_PASSWORD": "correct horse battery staple"}
    )

    assert MASK in redactor.redact(VALUE[: len(VALUE) // 2 + 2])
    assert MASK not in redactor.redact("a battery that is correct")
    assert MASK in redactor.redact("correct-horse-battery-staple")


def test_each_line_of_a_multiline_key_is_redacted() -> None:
    key = (
        "-----BEGIN X-----\nMIIEow1234567890abcdefghij\nZyXwVu0987654321jihgfedcba\n-----END X-----"
    )
    redactor = Redactor.from_environment({"DEPLOY_KEY": key})

    assert redactor.redact("see ZyXwVu0987654321jihgfedcba there") == f"see {MASK} there"


def test_the_password_in_a_database_url_is_redacted_by_itself() -> None:
    redactor = Redactor.from_environment(
        {"DATABASE_URL": "postgres://bob:" + "s3cr3tpass" + "@db.example/x"}
    )

    assert redactor.redact("it is s3cr3tpass") == f"it is {MASK}"


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
def test_names_and_commit_ids_do_not_look_random(token: str) -> None:
    assert not is_random_looking(token)


@pytest.mark.parametrize(
    "token", ["qX7vT2mB9cK4wR8zL1nD6hJ3pF5s" + "G0yA", "0123456789abcdef0123456789abcdef"]
)
def test_random_tokens_look_random(token: str) -> None:
    assert is_random_looking(token)


RANDOM = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF"  # 32 characters without a repeated pair


@pytest.mark.parametrize(
    ("token", "is_random"),
    [
        (RANDOM[:24], True),
        (RANDOM[:23], False),
        (RANDOM[:23] + "====", False),  # padding does not count
        ("--" + RANDOM[:24] + "==", True),
        # Hexadecimal digits: 32 or more, unless they are the id of an object of git.
        ("0123456789abcdef" * 2, True),
        ("0123456789abcdef0123456789abcde", False),
        ("0123456789ABCDEF" * 2, True),
        ("0123456f" * 5, False),
        ("0123456F" * 5, True),
        ("0123456f" * 8, False),
        ("0123456F" * 8, True),
        ("0123456f" * 5 + "0", True),
        # Letters in both cases and digits are needed.
        (RANDOM.lower(), False),
        (RANDOM.upper(), False),
        ("abcdEFGHijklMNOPqrstUVWXyzab", False),
        # Words of more than 8 letters in one case are names.
        ("aB3dE5gH7jK9mN1pQ" + "rstuvwxy" + "3D", True),
        ("aB3dE5gH7jK9mN1pQ" + "rstuvwxyz" + "3D", False),
        ("aB3dE5gH7jK9mN1p" + "3RSTUVWXYZ" + "3d", False),
        # A path has more than two slashes.
        ("aB3d/E5gH7jK9mN/1pQ3sT5vW7yZ", True),
        ("aB3d/E5gH/7jK9mN/1pQ3sT5vW7yZ", False),
        # Few different characters are not random.
        ("aB1" * 10, False),
    ],
)
def test_a_token_looks_random_by_its_length_and_its_characters(token: str, is_random: bool) -> None:
    assert is_random_looking(token) is is_random


def encodings(text: str) -> dict[str, str]:
    """Return a text in the encodings that a redactor must know, from an encoder of each."""
    raw = text.encode()
    found = {
        "hex": raw.hex(),
        "hex in upper case": raw.hex().upper(),
        "hex backwards": raw.hex()[::-1],
        "rot13": codecs.encode(text, "rot13"),
        "decimal": " ".join(str(byte) for byte in raw),
        "octal": " ".join(f"{byte:o}" for byte in raw),
        "binary": " ".join(f"{byte:08b}" for byte in raw),
        "base32": base64.b32encode(raw).decode(),
        "base64": base64.b64encode(raw).decode(),
        "base64 backwards": base64.b64encode(raw).decode()[::-1],
        "base64 of hex": base64.b64encode(raw.hex().encode()).decode(),
        "base64 of base64": base64.b64encode(base64.b64encode(raw)).decode(),
        "ascii85": base64.a85encode(raw).decode(),
        "base85": base64.b85encode(raw).decode(),
    }
    for wide in ("utf-16-le", "utf-16-be"):
        found[f"hex of {wide}"] = text.encode(wide).hex()
        found[f"base64 of {wide}"] = base64.b64encode(text.encode(wide)).decode()
    return found


# Without digits, so that its parts are not redacted: each form has to be found as a whole.
WORDS = "correcthorsebatterystaple"


@pytest.mark.parametrize("name", sorted(encodings(WORDS)))
def test_each_encoding_of_a_secret_and_of_its_reverse_is_redacted(name: str) -> None:
    redactor = Redactor.from_environment({}, WORDS)

    for text in (WORDS, WORDS[::-1]):
        hidden = redactor.redact_values(encodings(text)[name])

        # Only letters and digits are compared, and the last ones of some encodings are not known.
        start, mask, end = hidden.partition("***")
        assert mask
        assert not any(map(str.isalnum, start))
        assert len(end) <= 8


def test_escapes_in_escapes_are_decoded_three_times() -> None:
    redactor = Redactor.from_environment({}, WORDS)
    text = "%63" + WORDS[1:]

    for _ in range(3):
        assert redactor.redact_values(text) == "***"
        text = text.replace("%", "%25")
    assert redactor.redact_values(text) == text
    # Half of a character, and a number above those of all characters.
    for escape in ("\\ud800", "\\u{dfff}", "\\u{110000}"):
        assert redactor.redact_values(f"{escape}{WORDS}") == f"{escape}***"


@pytest.mark.parametrize("before", [b"", b"?", b"\xff", b"ab", b"\xff\xfe", b"abc"])
def test_a_short_secret_is_found_in_base64_at_each_offset(before: bytes) -> None:
    secret = "horsesbatter"
    redactor = Redactor.from_environment({}, secret)

    for after in (b"", b"x", b"\xff\xff"):
        text = base64.b64encode(before + secret.encode() + after).decode()

        assert "***" in redactor.redact_values(text)
    plain = base64.b64encode(secret.encode()).decode()
    assert redactor.redact_values(f"({plain})") == "(***)"


def test_each_line_of_a_secret_of_several_lines_is_redacted_by_itself() -> None:
    lines = [
        "-----BEGIN PASSPHRASE-----",
        "correcthorsebattery",
        "sixteen-letters-",
        "fifteen-letters",
    ]
    redactor = Redactor.from_environment({"A_PRIVATE_KEY": "\n".join(lines)})

    assert [redactor.redact_values(f"({line})") for line in lines] == [
        f"({lines[0]})",
        "(***)",
        "(***-)",
        f"({lines[3]})",
    ]
    assert redactor.redact_values("\n".join(lines)) == "-----***"


def test_parts_of_twelve_characters_of_a_long_secret_are_redacted() -> None:
    redactor = Redactor.from_environment({"A_TOKEN": VALUE})

    for start in range(len(VALUE) - 12 + 1):
        part = VALUE[start : start + 12]
        assert redactor.redact_values(f"({part})") == "(***)"
        assert redactor.redact_values(f"({part[:11]})") == f"({part[:11]})"


def test_a_secret_below_twenty_characters_is_redacted_as_a_whole_only() -> None:
    short, long = VALUE[:19], VALUE[:20]
    redactor = Redactor.from_environment({"A_TOKEN": short})

    assert redactor.redact_values(f"({short})") == "(***)"
    assert redactor.redact_values(f"({short[:18]})") == f"({short[:18]})"
    redactor = Redactor.from_environment({"A_TOKEN": long})
    assert redactor.redact_values(f"({long[:12]})") == "(***)"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("abcd-efgh", "***"),
        ("abcdefgh", "***"),
        ("abc-defg-", "abc-defg-"),  # seven letters could be an ordinary word
        ("abcdefg", "abcdefg"),
    ],
)
def test_a_secret_has_at_least_eight_letters_and_digits(value: str, text: str) -> None:
    redactors = Redactor.from_environment({}, value), Redactor.from_environment({"A_TOKEN": value})

    for redactor in redactors:
        assert redactor.redact_values(value) == text


@pytest.mark.parametrize(
    ("value", "is_found"),
    [
        ("aaaaaabbbbbb111222333444", False),  # 2.5 bits for each character
        ("aaaaaabbbbb1112223334445", True),
        ("aaaaaabbbbbbcccdddeeefff", False),  # without digits
        ("012345678901234567890123", False),  # without letters
    ],
)
def test_parts_of_a_long_secret_are_redacted_only_if_its_characters_vary(
    value: str, is_found: bool
) -> None:
    redactor = Redactor.from_environment({}, value)

    assert redactor.redact_values(value) == "***"
    assert (redactor.redact_values(value[:12]) == "***") is is_found


@pytest.mark.parametrize(
    "text",
    [
        "Schl\u00fcssel-W\u00f6rter",
        "SCHL\u00dcSSEL W\u00d6RTER",
        "Schlu\u0308ssel-Wo\u0308rter",  # letters and marks as characters of their own
        "Schlussel-Worter",
        "\uff33\uff43\uff48\uff4c\u00fc\uff53\uff53\uff45\uff4c W\u00f6rter",  # wide letters
    ],
)
def test_a_secret_with_letters_of_other_languages_is_redacted(text: str) -> None:
    for secret in ("Schl\u00fcssel-W\u00f6rter", "Schlu\u0308ssel-Wo\u0308rter"):
        redactor = Redactor.from_environment({}, secret)

        assert redactor.redact_values(f"({text})") == "(***)"


def test_letters_before_an_escape_belong_to_the_secret() -> None:
    redactor = Redactor.from_environment({}, WORDS)

    assert redactor.redact_values(f"c%6f{WORDS[2:]}") == "***"
    assert redactor.redact_values(f"co%72%72{WORDS[4:]}!") == "***!"


def test_secrets_that_overlap_or_touch_are_replaced_with_one_mask_each() -> None:
    redactor = Redactor(mask="#")

    assert redactor.cover("0123456789", [(2, 5), (4, 7)]) == "01#789"
    assert redactor.cover("0123456789", [(2, 8), (4, 5)]) == "01#89"
    assert redactor.cover("0123456789", [(5, 7), (2, 5)]) == "01##789"
    assert redactor.cover("0123456789", [(0, 1), (9, 10)]) == "#12345678#"
    assert redactor.cover("0123456789", []) == "0123456789"


def test_text_without_secrets_is_unchanged() -> None:
    redactor = Redactor.from_environment({"A_TOKEN": VALUE})
    text = (
        "The `cache` of load() is shared; see tests/test_app.py:12 and commit "
        + "a1b2c3d4e5" * 4
        + "."
    )

    assert redactor.redact(text) == text


def test_long_identifiers_that_start_like_a_key_are_unchanged() -> None:
    text = (
        "The constraint pk_user_accounts_identifier_unique and hf_transformer_model_loader are new."
    )

    assert Redactor.from_environment({}).redact(text) == text


def test_a_random_looking_token_is_redacted_without_a_known_value() -> None:
    token = "qX7vT2mB9cK4wR8zL1nD6hJ3pF5s" + "G0yA"

    assert Redactor.from_environment({}).redact(token) == MASK


@pytest.mark.parametrize("shape", ["a85", "b85", "utf-16-le", "utf-16-be", "tags"])
def test_rare_encodings_are_redacted(shape: str) -> None:
    redactor = Redactor.from_environment({"A_TOKEN": VALUE})
    encoders: dict[str, Callable[[bytes], bytes]] = {
        "a85": base64.a85encode,
        "b85": base64.b85encode,
    }
    if shape in encoders:
        text = encoders[shape](VALUE.encode()).decode()
    elif shape == "tags":
        text = "<b></b>".join(VALUE)
    else:
        text = base64.b64encode(VALUE.encode(shape)).decode()

    assert MASK in redactor.redact(f"`x = '{text}'`")


@pytest.mark.parametrize("code", [0xDCFF, 0xD800])
def test_a_secret_with_invalid_unicode_is_redacted(code: int) -> None:
    redactor = Redactor.from_environment({"A_TOKEN": f"abcdef{chr(code)}0123456789"})

    assert redactor.redact("say abcdef0123456789") == f"say {MASK}"


def test_mask_secrets_does_not_change_keys_of_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD_TOKEN", "messages")

    assert mask_secrets({"messages": ["messages", 1, None]}) == {"messages": ["***", 1, None]}
    assert mask_secrets(({"messages": ("messages",)},)) == [{"messages": ["***"]}]


def test_a_secret_that_starts_with_another_secret_is_masked_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "A_TOKEN": "abcdefgh",
        "B_TOKEN": "abcdefgh-and-the-rest",
        "C_TOKEN": "abcdefgh-and",
    }.items():
        monkeypatch.setenv(name, value)

    assert mask_secrets("abcdefgh-and-the-rest, abcdefgh") == "***, ***"


@pytest.mark.parametrize(
    "secret", ['pass"word\\one', "Schlüssel-9", 'Schlüs"sel-9', "two\nlines of it"]
)
def test_secrets_are_masked_in_escaped_json(monkeypatch: pytest.MonkeyPatch, secret: str) -> None:
    monkeypatch.setenv("ODD_TOKEN", secret)

    for plain in (True, False):
        once = json.dumps({"a": secret}, ensure_ascii=plain)
        twice = json.dumps({"b": once}, ensure_ascii=plain)
        assert mask_secrets([secret, once, twice]) == [
            "***",
            '{"a": "***"}',
            r'{"b": "{\"a\": \"***\"}"}',
        ]


@pytest.mark.parametrize("piece", ["sk-", "eyJ-", "hf-"])
def test_masking_repeated_key_prefixes_takes_linear_time(piece: str) -> None:
    started = time.process_time()

    mask_secrets(piece * 40_000)

    assert time.process_time() - started < 5  # the time once grew with the square of the length
    key = f"{piece * 3}{'a1' * 20}.{'b' * 20}"
    assert mask_secrets(key) != key


def test_only_long_values_of_variables_with_secret_names_are_masked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "PLAIN_NAME": "ordinary-value",
        "A_TOKEN": "seven-7",
        "B_TOKEN": "eight-88",
    }.items():
        monkeypatch.setenv(name, value)

    assert mask_secrets("ordinary-value seven-7 eight-88") == "ordinary-value seven-7 ***"


def test_the_escapes_of_json_are_followed_two_levels_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD_TOKEN", 'pass"word-one')
    once, twice, thrice = (
        'pass\\"word-one',
        'pass\\\\\\"word-one',
        'pass\\\\\\\\\\\\\\"word-one',
    )

    assert mask_secrets([once, twice, thrice]) == ["***", "***", thrice]


def test_mask_values_replaces_the_given_values_only() -> None:
    text = mask_values("key one-two, token three", ["one-two", "three"])

    assert text == "key ***, token ***"


def test_redact_values_keeps_random_tokens_that_are_no_known_value() -> None:
    token = "qX7vT2mB9cK4wR8zL1nD6hJ3pF5s" + "G0yA"
    redactor = Redactor.from_environment({"A_TOKEN": VALUE}, mask="[redacted]")

    assert redactor.redact_values(f"{VALUE} {token}") == f"[redacted] {token}"


def test_the_secrets_in_a_json_key_are_redacted_by_themselves() -> None:
    private = "a1B2c3D4e5F6g7H8i9J0"
    key = '{"type": "service_account_of_mine", "private_key_id": "' + private + '"}'
    redactor = Redactor.from_environment({"GOOGLE_CREDENTIALS_KEY": key})

    assert redactor.redact_values(f"x {private} y") == f"x {MASK} y"
    # Base 85 groups the bytes, so a part has another encoding than it has within the whole.
    assert redactor.redact_values(base64.b85encode(private.encode()).decode()) == MASK


@pytest.mark.parametrize(
    "form",
    [
        "%{:02x}",
        "%{:02X}",
        "&#{};",
        "&#x{:x};",
        "\\x{:02x}",
        "\\u{:04x}",
        "\\u{{{:04x}}}",
        "\\{:03o}",
    ],
)
def test_a_secret_is_redacted_in_escaped_characters(form: str) -> None:
    redactor = Redactor.from_environment({"A_TOKEN": VALUE})
    escaped = "".join(form.format(ord(character)) for character in VALUE)

    assert redactor.redact(f"say {escaped}!") == f"say {MASK}!"


def test_escapes_without_a_secret_are_unchanged() -> None:
    redactor = Redactor.from_environment({"A_TOKEN": VALUE})
    text = r"100%25 &amp; \x41 \ud800 \u{110000} \101 &nosuchname; =3D."

    assert redactor.redact(text) == text
