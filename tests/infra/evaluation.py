"""What a deployment would be given: Bicep expressions worked out as far as possible without Azure.

Promised: literals, interpolation, variables, parameters, module parameters and outputs, loops over
arrays (of values, resources and modules), conditions, lambdas and the functions of `FUNCTIONS` are
worked out. Not promised: anything only Azure knows, and every other function; it becomes an
`Unknown` that carries its source text, so that two of them are equal when their sources are.
"""

import json
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tree_sitter import Node

from tests.infra.bicep import Bicep, Declaration, Kind, read, text


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value only a deployment has."""

    source: str

    def __str__(self) -> str:
        return f"<{self.source}>"


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource, with its body worked out; a loop declares several."""

    declaration: Declaration
    body: Any = field(repr=False)

    @property
    def type(self) -> str:
        return self.declaration.target.partition("@")[0]


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A Bicep file together with the values of its parameters."""

    bicep: Bicep
    arguments: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def value(self, name: str) -> Any:
        """What a name stands for; KeyError if the file declares no such name."""
        if name in self.arguments:
            return self.arguments[name]
        declared = self.bicep.of(Kind.PARAMETER, Kind.VARIABLE, Kind.RESOURCE, Kind.MODULE)[name]
        if declared.kind not in (Kind.RESOURCE, Kind.MODULE):
            return self.worked_out(declared)
        is_module = declared.kind is Kind.MODULE
        found = self.modules(name) if is_module else self.resources(name)
        is_loop = declared.expression is not None and declared.expression.type == "for_statement"
        return found if is_loop else next(iter(found), None)

    def worked_out(self, declared: Declaration) -> Any:
        """The right-hand side of a declaration, which a parameter has that need not be given."""
        assert declared.expression is not None, f"{declared.name} was not given"
        return evaluate(declared.expression, self)

    def knowing(self, names: Mapping[str, Any]) -> "Template":
        """The same file, in which further names stand for values."""
        return Template(self.bicep, {**self.arguments, **names})

    def module(self, name: str) -> "Template":
        """The one file that a module names, with the parameters this template gives it."""
        (found,) = self.modules(name)
        return found

    def modules(self, name: str) -> list["Template"]:
        """The file that a module names, once for each time that it is deployed."""
        declared = self.bicep.of(Kind.MODULE)[name]
        bodies = self.bodies(declared)
        return [Template(read(declared.target), body["params"]) for body in bodies]

    def output(self, name: str) -> Any:
        return self.worked_out(self.bicep.of(Kind.OUTPUT)[name])

    def resource(self, name: str) -> Any:
        (found,) = self.resources(name)
        return found.body

    def resources(self, *names: str) -> list[Resource]:
        """The resources of these names, or all; none whose condition does not hold."""
        return [
            Resource(declared, body)
            for name, declared in self.bicep.of(Kind.RESOURCE).items()
            if not names or name in names
            for body in self.bodies(declared)
        ]

    def bodies(self, declared: Declaration) -> list[Any]:
        """What a declaration declares: several in a loop, nothing where its condition is false."""
        found = self.worked_out(declared)
        return [one for one in (found if isinstance(found, list) else [found]) if one is not None]


def evaluate(node: Node, template: Template) -> Any:
    """Work an expression out; what Azure alone knows comes back as `Unknown`."""
    expression = EXPRESSIONS.get(node.type)
    return expression(node, template) if expression else Unknown(text(node))


def string(node: Node, template: Template) -> str:
    pieces = (
        evaluate(part.named_children[0], template)
        if part.type == "interpolation"
        else text(part).replace("\\'", "'")
        for part in node.named_children
    )
    return "".join(map(str, pieces))


def mapping(node: Node, template: Template) -> dict[str, Any]:
    entries = (uncommented(part) for part in uncommented(node))
    return {
        string(key, template) if key.type == "string" else text(key): evaluate(value, template)
        for key, value in entries
    }


def loop(node: Node, template: Template) -> Any:
    """`[for (item, index) in array: body]`, or without the index."""
    source, body = uncommented(node)[-2:]
    items = evaluate(source, template)
    first = node.named_children[0]
    names = first.named_children if first.type == "for_loop_parameters" else [first]
    return [
        evaluate(body, template.knowing(dict(zip(map(text, names), found, strict=False))))
        for found in zip(items, range(len(items)), strict=True)
    ]


def member(node: Node, template: Template) -> Any:
    owner, key = evaluate(node.named_children[0], template), text(node.named_children[1])
    match owner:
        case dict():
            return owner[key]
        case Resource():
            name = owner.body["name"]
            # Any other member only Azure knows: the name tells it apart.
            return name if key == "name" else Unknown(f"{bare(name)}.{key}")
        case Template() if key == "outputs":
            return {output: owner.output(output) for output in owner.bicep.of(Kind.OUTPUT)}
    return Unknown(f"{bare(owner)}.{key}")


def subscript(node: Node, template: Template) -> Any:
    """`array[index]`; IndexError outside the array, a negative index too, as in a deployment."""
    owner, index = (evaluate(part, template) for part in uncommented(node))
    if not isinstance(owner, list) or not isinstance(index, int):
        return Unknown(f"{bare(owner)}[{bare(index)}]")
    if index < 0:
        raise IndexError(f"{text(node)}: {index}")
    return owner[index]


def lambda_expression(node: Node, template: Template) -> Callable[[Any], Any]:
    """A function of one argument, as `map` takes it."""
    argument, result = uncommented(node)
    return lambda value: evaluate(result, template.knowing({text(argument): value}))


def call(node: Node, template: Template) -> Any:
    """A function of the table is run; of others name and arguments stand for the result."""
    name, given = node.named_children
    arguments = [evaluate(argument, template) for argument in uncommented(given)]
    function = FUNCTIONS.get(text(name))
    if text(name) == "empty" and isinstance(arguments[0], Unknown):
        return False  # only Azure knows it, so Azure has it
    if function and not any(isinstance(one, Unknown) for one in arguments):
        return function(*arguments)
    return Unknown(f"{text(name)}({', '.join(map(bare, arguments))})")


def union(*values: Any) -> Any:
    """Objects by key, the later one's values; or arrays, each element once."""
    if isinstance(values[0], dict):
        return {key: found for value in values for key, found in value.items()}
    elements = [element for value in values for element in value]
    return [one for index, one in enumerate(elements) if one not in elements[:index]]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "contains": lambda value, part: part in value,
    "concat": lambda *arrays: [element for array in arrays for element in array],
    "empty": lambda value: not value,
    "filter": lambda values, is_kept: [one for one in values if is_kept(one)],
    "indexOf": lambda values, value: values.index(value) if value in values else -1,
    "join": lambda values, between: between.join(map(str, values)),
    "map": lambda values, change: [change(one) for one in values],
    "split": lambda value, between: value.split(between),
    "string": lambda value: value if isinstance(value, str) else json.dumps(value, default=str),
    "toObject": lambda values, key, value: {key(one): value(one) for one in values},
    "trim": str.strip,
    "union": union,
}


def choice(node: Node, template: Template) -> Any:
    """`condition ? chosen : otherwise`, or `if (condition) chosen`, which may come to None."""
    condition, chosen, *otherwise = uncommented(node)
    if holds(condition, template):
        return evaluate(chosen, template)
    return evaluate(otherwise[0], template) if otherwise else None


def holds(node: Node, template: Template) -> bool:
    """Whether a condition holds; NotImplementedError where that cannot be told."""
    value = evaluate(node, template)
    if not isinstance(value, bool):
        raise NotImplementedError(f"condition {text(node)!r}")
    return value


def inner(node: Node, template: Template) -> Any:
    return evaluate(uncommented(node)[0], template)


def binary(node: Node, template: Template) -> Any:
    left, right = (evaluate(part, template) for part in uncommented(node))
    work_out = OPERATORS.get(node.children[1].type)
    if work_out is None or isinstance(left, Unknown) or isinstance(right, Unknown):
        raise NotImplementedError(f"condition {text(node)!r}")
    return work_out(left, right)


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "&&": operator.and_,
    "||": operator.or_,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def uncommented(node: Node) -> list[Node]:
    return [part for part in node.named_children if not part.type.endswith("comment")]


def bare(value: Any) -> str:
    return value.source if isinstance(value, Unknown) else str(value)


EXPRESSIONS: dict[str, Callable[[Node, Template], Any]] = {
    "array": lambda node, template: [evaluate(item, template) for item in uncommented(node)],
    "binary_expression": binary,
    "boolean": lambda node, _: text(node) == "true",
    "call_expression": call,
    "for_statement": loop,
    "identifier": lambda node, template: template.value(text(node)),
    "if_statement": choice,
    "lambda_expression": lambda_expression,
    "member_expression": member,
    "number": lambda node, _: int(text(node)),
    "object": mapping,
    "parenthesized_expression": inner,
    "string": string,
    "subscript_expression": subscript,
    "ternary_expression": choice,
    "unary_expression": lambda node, template: not holds(uncommented(node)[0], template),
}
