"""A rule that never speaks proves nothing: each is shown a file that breaks it, and must say so."""

import pytest

from tests.infra.bicep import INFRA, parse
from tests.infra.rules import RULES, breaches

DESCRIBED = "@description('Required. A name.')\n"
ACCOUNT = "resource a 'Microsoft.DocumentDB/databaseAccounts@2024-11-15' = {\n"

BROKEN: list[tuple[str, str, str]] = [
    ("syntax", "var x = {", "tree-sitter cannot read"),
    ("syntax", "var x = [for y in [1]: if (y == 1) { a: y }]", "pycep cannot read it"),
    ("unique_names", "var x = 1\nvar x = 2\nvar y = x", "x is declared twice"),
    ("resolved_names", "output o string = missing", "missing is not declared"),
    ("resolved_names", "output o string = 'a${missing}'", "missing is not declared"),
    ("resolved_names", "output o array = [for p in [1]: q]", "q is not declared"),
    ("resolved_names", "output o string = newGuid()", "function newGuid is not known"),
    ("used_names", DESCRIBED + "param name string", "name is never used"),
    ("resolved_members", "var r = { a: 1 }\noutput o int = r.b", "r has no key b"),
    (
        "resolved_members",
        "module m 'journal.bicep' = { name: 'm' }\noutput o string = m.outputs.nothing",
        "journal.bicep has no output nothing",
    ),
    (
        "module_parameters",
        "module m 'journal.bicep' = {\n  name: 'm'\n  params: { accountName: 'a' }\n}",
        "journal.bicep requires locations",
    ),
    (
        "module_parameters",
        "module m 'journal.bicep' = {\n  name: 'm'\n  params: { colour: 'red' }\n}",
        "journal.bicep has no parameter colour",
    ),
    ("module_parameters", "module m 'gone.bicep' = { name: 'm' }", "gone.bicep does not exist"),
    ("parents", "resource a 'A.B/c/d@2024-01-01' = { name: 'a' }", "a has no parent A.B/c"),
    (
        "parents",
        ACCOUNT + "  name: 'a'\n}\nresource q 'A.B/c/d@2024-01-01' = {\n  parent: a\n}",
        "q has no parent A.B/c",
    ),
    (
        "module_scopes",
        "targetScope = 'subscription'\nmodule m 'journal.bicep' = { name: 'm' }",
        "module m has no scope",
    ),
    ("descriptions", "param name string\nvar x = name", "name is not described"),
    ("descriptions", DESCRIBED + "param name string = 'a'", "name must open with 'Optional.'"),
    (
        "pinned_versions",
        "resource a 'Microsoft.Storage/storageAccounts@2023-05-01-preview' = { name: 'a' }",
        "API version '2023-05-01-preview' is not pinned",
    ),
    ("pinned_versions", "resource a 'Microsoft.Storage/storageAccounts' = { name: 'a' }", "''"),
    (
        "no_secrets",
        ACCOUNT + "  name: 'a'\n}\noutput o string = a.listKeys().primaryMasterKey",
        "listKeys is a secret",
    ),
    ("no_secrets", ACCOUNT + "  name: 'a'\n}\noutput o string = a.x.primaryKey", "primaryKey is a"),
    ("no_secrets", "var c = 'Endpoint=sb://x;SharedAccessKey=abc'", "a secret is written out"),
    ("known_roles", "var r = '00000000-1111-2222-3333-444444444444'", "is no known role"),
    ("known_roles", "var r = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'", "no comment says why"),
    (
        "known_roles",
        "// Storage Blob Data Owner: wrong name\nvar r = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'",
        "no comment says why 'Azure Service Bus Data Sender'",
    ),
]

SOUND = """\
@description('Required. Names.')
param names array

// Azure Service Bus Data Sender: to send.
var sender = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39'

@description('Ids.')
output ids array = [for (name, index) in names: '${name}-${index}-${sender}']
"""


@pytest.mark.parametrize(("rule", "source", "said"), BROKEN)
def test_a_broken_file_is_named_by_the_rule_it_breaks(rule: str, source: str, said: str) -> None:
    found = {check.__name__: list(check(parse(source, INFRA / "broken.bicep"))) for check in RULES}

    assert any(said in sentence for sentence in found[rule]), found


def test_every_rule_has_a_file_that_breaks_it() -> None:
    assert {rule for rule, _, _ in BROKEN} == {check.__name__ for check in RULES}


def test_a_sound_file_breaks_no_rule() -> None:
    assert breaches(parse(SOUND, INFRA / "sound.bicep")) == []
