"""House rules of the Bicep files: what can be held against them without a compiler.

Each rule takes a file and yields one sentence per breach, with file and line. No breach is no
promise that Azure accepts the file: types, properties and function signatures are not looked at.
"""

import re
from collections.abc import Callable, Iterator
from datetime import date

import pycep
from tree_sitter import Node

from tests.infra import evaluation
from tests.infra.bicep import Bicep, Declaration, Kind, entries, read, text, walk

type Rule = Callable[[Bicep], Iterator[str]]

FUNCTIONS = {
    "environment",
    "guid",
    "resourceGroup",
    "subscription",
    "subscriptionResourceId",
    "uniqueString",
    *evaluation.FUNCTIONS,
}

# https://learn.microsoft.com/azure/role-based-access-control/built-in-roles; the last two are
# data-plane roles of Cosmos DB.
KNOWN_ROLES = {
    "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0": "Azure Service Bus Data Receiver",
    "090c5cfd-751d-490a-894a-3ce6f1109419": "Azure Service Bus Data Owner",
    "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39": "Azure Service Bus Data Sender",
    "b7e6dc6d-f1e8-4753-8033-0f276bb0955b": "Storage Blob Data Owner",
    "974c5e8b-45b9-4653-ba55-5f855dd0fb88": "Storage Queue Data Contributor",
    "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3": "Storage Table Data Contributor",
    "0ad04412-c4d5-4796-b79c-f76d14c8d402": "Durable Task Data Contributor",
    "3913510d-42f4-4e42-8a64-420c390055eb": "Monitoring Metrics Publisher",
    "43d0d8ad-25c7-4714-9337-8ba259a9fe05": "Monitoring Reader",
    "00000000-0000-0000-0000-000000000001": "Cosmos DB Built-in Data Reader",
    "00000000-0000-0000-0000-000000000002": "Cosmos DB Built-in Data Contributor",
}

GUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
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
    "AzureFunctionsJobHost__extensions__durableTask__storageProvider__connectionStringName": (
        "as above"
    ),
    "noScmPassword": "forbids a publishing password",
    "noFtpPassword": "forbids a publishing password",
}


# What tree-sitter's grammar takes for the owner of a member, where Bicep binds the member first.
LOOSER_THAN_A_MEMBER = {
    "binary_expression",
    "lambda_expression",
    "ternary_expression",
    "unary_expression",
}


def syntax(bicep: Bicep) -> Iterator[str]:
    """Both parsers read the file whole, and tree-sitter as Bicep does."""
    for node in walk(bicep.root):
        if (
            node.type in {"member_expression", "subscript_expression"}
            and node.named_children[0].type in LOOSER_THAN_A_MEMBER
        ):
            yield at(bicep, node, f"put parentheses into {text(node)[:60]!r}: tree-sitter errs")
        if node.is_error or node.is_missing:
            yield at(bicep, node, f"tree-sitter cannot read {text(node)[:40]!r}")
    try:
        pycep.BicepParser().parse(text=bicep.source)
    except Exception as error:  # its grammar and its transformer raise unrelated classes
        yield f"{bicep.path.name}: pycep cannot read it: {str(error).splitlines()[0]}"


def unique_names(bicep: Bicep) -> Iterator[str]:
    """Parameters, variables, resources and modules share one name space; outputs have their own."""
    seen: set[tuple[bool, str]] = set()
    for declared in bicep.declarations:
        key = (declared.kind is Kind.OUTPUT, declared.name)
        if key in seen:
            yield at(bicep, declared.node, f"{declared.name} is declared twice")
        seen.add(key)


def resolved_names(bicep: Bicep) -> Iterator[str]:
    """Every name used is declared, and every function called is one we know."""
    known = symbols(bicep)
    for node, local_names in references(bicep):
        name = text(node)
        if is_called(node):
            if name not in FUNCTIONS:
                yield at(bicep, node, f"function {name} is not known")
        elif name not in known and name not in local_names:
            yield at(bicep, node, f"{name} is not declared")


def used_names(bicep: Bicep) -> Iterator[str]:
    """Every parameter and variable is used."""
    used = {text(node) for node, _ in references(bicep)}
    for declared in bicep.of(Kind.PARAMETER, Kind.VARIABLE).values():
        if declared.name not in used:
            yield at(bicep, declared.node, f"{declared.name} is never used")


def resolved_members(bicep: Bicep) -> Iterator[str]:
    """`module.outputs.x` is an output of that file, `variable.key` a key of that object."""
    modules, variables = bicep.of(Kind.MODULE), bicep.of(Kind.VARIABLE)
    for node in walk(bicep.root):
        if node.type != "member_expression":
            continue
        path = text(node).split(".")
        match path:
            case [owner, "outputs", name] if owner in modules:
                if name not in read(bicep.module_file(modules[owner])).of(Kind.OUTPUT):
                    yield at(bicep, node, f"{modules[owner].target} has no output {name}")
            case [owner, name] if owner in variables and name not in variables[owner].entries:
                yield at(bicep, node, f"{owner} has no key {name}")


def module_parameters(bicep: Bicep) -> Iterator[str]:
    """A module is given every parameter it requires and none it does not have."""
    for module in bicep.of(Kind.MODULE).values():
        path = bicep.module_file(module)
        if not path.is_file():
            yield at(bicep, module.node, f"module file {module.target} does not exist")
            continue
        declared = read(path).of(Kind.PARAMETER)
        params = module.entries.get("params")
        given = entries(params).keys() if params else set()
        for name in sorted(given - declared.keys()):
            yield at(bicep, module.node, f"{module.target} has no parameter {name}")
        for name in sorted(required(declared) - given):
            yield at(bicep, module.node, f"{module.target} requires {name}")


def parents(bicep: Bicep) -> Iterator[str]:
    """A child resource names a parent of the type that its own type says."""
    resources = bicep.of(Kind.RESOURCE)
    for resource in resources.values():
        owner_type = resource.target.partition("@")[0].rpartition("/")[0]
        if "/" not in owner_type:
            continue
        parent = resource.entries.get("parent")
        owner = resources.get(text(parent).partition("[")[0]) if parent else None
        if owner is None or owner.target.partition("@")[0] != owner_type:
            yield at(bicep, resource.node, f"{resource.name} has no parent {owner_type}")


def module_scopes(bicep: Bicep) -> Iterator[str]:
    """Where a whole subscription is the target, every module says which group it goes to."""
    if "targetScope = 'subscription'" not in bicep.source:
        return
    for module in bicep.of(Kind.MODULE).values():
        if "scope" not in module.entries:
            yield at(bicep, module.node, f"module {module.name} has no scope")


def descriptions(bicep: Bicep) -> Iterator[str]:
    """Every parameter and output is described; a parameter says whether it must be given."""
    for declared in bicep.of(Kind.PARAMETER, Kind.OUTPUT).values():
        found = declared.decorators.get("description")
        words = text(found).strip("'") if found else ""
        if not words:
            yield at(bicep, declared.node, f"{declared.name} is not described")
        elif declared.kind is Kind.PARAMETER:
            opening = "Required." if declared.expression is None else "Optional."
            if not words.startswith(opening):
                yield at(bicep, declared.node, f"{declared.name} must open with {opening!r}")


def pinned_versions(bicep: Bicep) -> Iterator[str]:
    """Every resource type carries a dated API version that is no preview."""
    for resource in bicep.of(Kind.RESOURCE).values():
        version = resource.target.partition("@")[2]
        if resource.target in PREVIEWS:
            continue
        try:
            date.fromisoformat(version)
        except ValueError:
            yield at(
                bicep, resource.node, f"{resource.name}: API version {version!r} is not pinned"
            )


def no_secrets(bicep: Bicep) -> Iterator[str]:
    """No key, password or connection string is read, written or passed on."""
    for node in walk(bicep.root):
        spoken = text(node)
        match node.type:
            case "identifier" | "property_identifier":
                if SECRET_NAME.fullmatch(spoken) and spoken not in HARMLESS:
                    yield at(bicep, node, f"{spoken} is a secret, or named like one")
            case "string_content" if SECRET_TEXT.search(spoken):
                yield at(bicep, node, "a secret is written out")


def known_roles(bicep: Bicep) -> Iterator[str]:
    """Every role id is one of the table, and the comment before it names the role."""
    for node in walk(bicep.root):
        found = GUID.fullmatch(text(node)) if node.type == "string_content" else None
        if found is None:
            continue
        role = KNOWN_ROLES.get(found.group())
        if role is None:
            yield at(bicep, node, f"{found.group()} is no known role")
        elif f"// {role}: " not in reason(node):
            yield at(bicep, node, f"no comment says why {role!r} is needed")


RULES: tuple[Rule, ...] = (
    syntax,
    unique_names,
    resolved_names,
    used_names,
    resolved_members,
    module_parameters,
    parents,
    module_scopes,
    descriptions,
    pinned_versions,
    no_secrets,
    known_roles,
)


def breaches(bicep: Bicep) -> list[str]:
    return [found for rule in RULES for found in rule(bicep)]


def at(bicep: Bicep, node: Node, what: str) -> str:
    return f"{bicep.path.name}:{node.start_point.row + 1}: {what}"


def symbols(bicep: Bicep) -> set[str]:
    return set(bicep.of(Kind.PARAMETER, Kind.VARIABLE, Kind.RESOURCE, Kind.MODULE))


def references(bicep: Bicep) -> Iterator[tuple[Node, frozenset[str]]]:
    """Every identifier that is used rather than declared, with the loop names it may see."""
    for declared in bicep.declarations:
        if declared.expression is not None:
            yield from identifiers(declared.expression, frozenset())


def identifiers(node: Node, local_names: frozenset[str]) -> Iterator[tuple[Node, frozenset[str]]]:
    if node.type == "lambda_expression":
        local_names = local_names | {text(node.named_children[0])}
    if node.type == "for_statement":
        first = node.named_children[0]
        names = first.named_children if first.type == "for_loop_parameters" else [first]
        local_names = local_names | {text(name) for name in names}
    if node.type == "identifier":
        yield node, local_names
    parts = node.children[1:] if is_keyed(node) else node.children
    for part in parts:
        yield from identifiers(part, local_names)


def is_keyed(node: Node) -> bool:
    """Whether the node is a property whose first child is a plain key, not a name in use."""
    return node.type == "object_property" and node.children[0].type == "identifier"


def is_called(node: Node) -> bool:
    parent = node.parent
    return parent is not None and parent.type == "call_expression" and parent.children[0] == node


def required(parameters: dict[str, Declaration]) -> set[str]:
    return {name for name, declared in parameters.items() if declared.expression is None}


def reason(node: Node) -> str:
    """The run of comments right above the property or variable that holds the node."""
    holder = node.parent
    while holder is not None and holder.type not in {"object_property", Kind.VARIABLE}:
        holder = holder.parent
    lines: list[str] = []
    above = holder.prev_named_sibling if holder is not None else None
    while above is not None and above.type == "comment":
        lines.insert(0, text(above))
        above = above.prev_named_sibling
    return "\n".join(lines)
