"""House rules of the Bicep files: what the compiler does not ask.

Each rule takes a file and yields one sentence per breach, with file and line.
"""

import re
from collections.abc import Callable, Iterator

from tree_sitter import Node

from tests.infra.bicep import Bicep, Kind, text, walk

type Rule = Callable[[Bicep], Iterator[str]]

SECRET_NAME = re.compile(
    r"(?-i:list[A-Z])\w*|\w*(?:primary|secondary|account|shared\w*)key\w*|\w*connectionstring\w*"
    r"|\w*password\w*",
    re.IGNORECASE,
)
SECRET_TEXT = re.compile(
    r"(?:SharedAccessKey|AccountKey|InstrumentationKey|sig|Password)\w*=", re.IGNORECASE
)

# Types that have no dated version with what is used here (categoryGroup, and workspaces).
PREVIEWS = {"Microsoft.Insights/diagnosticSettings@2021-05-01-preview"}

# Names that look like secrets and are not, each with the reason.
HARMLESS = {
    "allowSharedKeyAccess": "switches keys off",
    "ConnectionString": "of Application Insights, where DisableLocalAuth makes it a mere address",
    "connectionStringName": "of Durable, names a setting that holds an address and no key",
    "noScmPassword": "forbids a publishing password",
    "noFtpPassword": "forbids a publishing password",
}


# What tree-sitter's grammar takes for the owner of a member, where Bicep binds the member first.
LOOSER_THAN_A_MEMBER = {f"{kind}_expression" for kind in ("binary", "lambda", "ternary", "unary")}


def readable(bicep: Bicep) -> Iterator[str]:
    """Tree-sitter reads the file whole, and as Bicep does."""
    for node in walk(bicep.root):
        is_member = node.type in {"member_expression", "subscript_expression"}
        if is_member and node.named_children[0].type in LOOSER_THAN_A_MEMBER:
            yield at(bicep, node, f"put parentheses into {text(node)[:60]!r}: tree-sitter errs")
        if node.is_error or node.is_missing:
            yield at(bicep, node, f"tree-sitter cannot read {text(node)[:40]!r}")


def descriptions(bicep: Bicep) -> Iterator[str]:
    for declared in bicep.of(Kind.PARAMETER, Kind.OUTPUT).values():
        if "description" not in declared.decorators:
            yield at(bicep, declared.node, f"{declared.name} is not described")


def no_previews(bicep: Bicep) -> Iterator[str]:
    for resource in bicep.of(Kind.RESOURCE).values():
        if resource.target.endswith("-preview") and resource.target not in PREVIEWS:
            yield at(bicep, resource.node, f"{resource.target} is a preview")


def no_secrets(bicep: Bicep) -> Iterator[str]:
    """No key, password or connection string is read, written or passed on."""
    for node in walk(bicep.root):
        spoken = text(node)
        match node.type:
            case "identifier" | "property_identifier":
                if SECRET_NAME.fullmatch(spoken) and spoken.split("__")[-1] not in HARMLESS:
                    yield at(bicep, node, f"{spoken} is a secret, or named like one")
            case "string_content" if SECRET_TEXT.search(spoken):
                yield at(bicep, node, "a secret is written out")


RULES: tuple[Rule, ...] = (readable, descriptions, no_previews, no_secrets)


def breaches(bicep: Bicep) -> list[str]:
    return [found for rule in RULES for found in rule(bicep)]


def at(bicep: Bicep, node: Node, what: str) -> str:
    return f"{bicep.path.name}:{node.start_point.row + 1}: {what}"
