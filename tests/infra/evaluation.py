"""What a deployment would be given: Bicep expressions worked out as far as possible without Azure.

Promised: literals, interpolation, variables, parameters, module parameters and outputs, loops over
arrays (of values, resources and modules), conditions, lambdas and the functions of `FUNCTIONS` are
worked out. Not promised: anything only Azure knows, and every other function; it becomes an
`Unknown` that carries its source text, so that two of them are equal when their sources are.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tree_sitter import Node

from tests.infra.bicep import Bicep, Declaration, Kind, child, read, text

type Value = (
    str
    | int
    | bool
    | list[Value]
    | dict[str, Value]
    | Unknown
    | Resource
    | Template
    | Lambda
    | None
)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value only a deployment has."""

    source: str

    def __str__(self) -> str:
        return f"<{self.source}>"


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource in the template that declares it."""

    template: "Template" = field(repr=False)
    declaration: Declaration
    index: int | None = None  # its place in a loop

    @property
    def type(self) -> str:
        return self.declaration.target.partition("@")[0]

    @property
    def body(self) -> dict[str, Value]:
        value = self.template.worked_out(self.declaration)
        if isinstance(value, list) and self.index is not None:
            value = value[self.index]
        if not isinstance(value, dict):
            raise TypeError(f"{self.declaration.name} has no body that can be worked out")
        return value

    def member(self, key: str) -> Value:
        """The resource's name; any other member only Azure knows: the name tells it apart."""
        name = self.body["name"]
        return name if key == "name" else Unknown(f"{bare(name)}.{key}")


@dataclass(frozen=True, slots=True, eq=False)
class Lambda:
    """A function of one argument, as `map` takes it."""

    result: Callable[[Value], Value] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A Bicep file together with the values of its parameters."""

    bicep: Bicep
    arguments: Mapping[str, Value] = field(default_factory=dict, repr=False)

    def value(self, name: str) -> Value:
        """What a name stands for; KeyError if the file declares no such name."""
        if name in self.arguments:
            return self.arguments[name]
        declared = self.bicep.of(Kind.PARAMETER, Kind.VARIABLE, Kind.RESOURCE, Kind.MODULE)[name]
        match declared.kind:
            case Kind.RESOURCE:
                found = self.resources(name)
                return list(found) if is_loop(declared) else (found[0] if found else None)
            case Kind.MODULE:
                modules = self.modules(name)
                return list(modules) if is_loop(declared) else (modules[0] if modules else None)
        return self.worked_out(declared)

    def worked_out(self, declared: Declaration) -> Value:
        """The right-hand side of a declaration; KeyError for a parameter that was not given."""
        if declared.expression is None:
            raise KeyError(f"{self.bicep.path.name}: {declared.name} was not given")
        return evaluate(declared.expression, self)

    def knowing(self, names: Mapping[str, Value]) -> "Template":
        """The same file, in which further names stand for values."""
        return Template(self.bicep, {**self.arguments, **names})

    def module(self, name: str) -> "Template":
        """The one file that a module names, with the parameters this template gives it."""
        (found,) = self.modules(name)
        return found

    def modules(self, name: str) -> list["Template"]:
        """The file that a module names, once for each time that it is deployed."""
        declared = self.bicep.of(Kind.MODULE)[name]
        bicep = read(self.bicep.module_file(declared))
        bodies = self.worked_out(declared)
        found = []
        for body in bodies if isinstance(bodies, list) else [bodies]:
            match body:
                case {"params": dict(arguments)}:
                    found.append(Template(bicep, arguments))
                case None:  # its condition does not hold
                    pass
                case _:
                    raise TypeError(f"{name} is given no parameters")
        return found

    def output(self, name: str) -> Value:
        return self.worked_out(self.bicep.of(Kind.OUTPUT)[name])

    def resource(self, name: str) -> dict[str, Value]:
        """The body of a resource, worked out."""
        (found,) = self.resources(name)
        return found.body

    def resources(self, *names: str) -> list[Resource]:
        """The resources of these names, or all; none whose condition does not hold."""
        found = []
        for name, declared in self.bicep.of(Kind.RESOURCE).items():
            if names and name not in names:
                continue
            body = self.worked_out(declared)
            if isinstance(body, list):
                found += [Resource(self, declared, index) for index in range(len(body))]
            elif body is not None:
                found.append(Resource(self, declared))
        return found


def is_loop(declared: Declaration) -> bool:
    return declared.expression is not None and declared.expression.type == "for_statement"


def evaluate(node: Node, template: Template) -> Value:
    """Work an expression out; what Azure alone knows comes back as `Unknown`."""
    expression = EXPRESSIONS.get(node.type)
    return expression(node, template) if expression else Unknown(text(node))


def number(node: Node, _: Template) -> int:
    return int(text(node))


def boolean(node: Node, _: Template) -> bool:
    return text(node) == "true"


def identifier(node: Node, template: Template) -> Value:
    return template.value(text(node))


def string(node: Node, template: Template) -> str:
    return "".join(str(piece(part, template)) for part in node.named_children)


def piece(node: Node, template: Template) -> Value:
    """One stretch of a string: its characters, or an interpolated value."""
    if node.type == "interpolation":
        return evaluate(node.named_children[0], template)
    return text(node).replace("\\'", "'")


def mapping(node: Node, template: Template) -> dict[str, Value]:
    return dict(entry(part, template) for part in uncommented(node))


def entry(node: Node, template: Template) -> tuple[str, Value]:
    key, value = uncommented(node)
    label = string(key, template) if key.type == "string" else text(key)
    return label, evaluate(value, template)


def array(node: Node, template: Template) -> list[Value]:
    return [evaluate(item, template) for item in uncommented(node)]


def loop(node: Node, template: Template) -> Value:
    """`[for (item, index) in array: body]`, or without the index."""
    source, body = uncommented(node)[-2:]
    items = evaluate(source, template)
    if not isinstance(items, list):
        return Unknown(text(node))
    rounds = (loop_names(node, item, index) for index, item in enumerate(items))
    return [evaluate(body, template.knowing(names)) for names in rounds]


def loop_names(node: Node, item: Value, index: int) -> dict[str, Value]:
    first = node.named_children[0]
    if first.type != "for_loop_parameters":
        return {text(first): item}
    names = (text(child(first, "loop_variable")), text(child(first, "loop_enumerator")))
    return dict(zip(names, (item, index), strict=True))


def member(node: Node, template: Template) -> Value:
    owner, key = evaluate(node.named_children[0], template), text(node.named_children[1])
    match owner:
        case dict():
            return owner[key]
        case Resource():
            return owner.member(key)
        case Template() if key == "outputs":
            return {output: owner.output(output) for output in owner.bicep.of(Kind.OUTPUT)}
    return Unknown(f"{bare(owner)}.{key}")


def subscript(node: Node, template: Template) -> Value:
    """`array[index]`; IndexError outside the array, a negative index too, as in a deployment."""
    owner, index = (evaluate(part, template) for part in uncommented(node))
    if not isinstance(owner, list) or not isinstance(index, int):
        return Unknown(f"{bare(owner)}[{bare(index)}]")
    if index < 0:
        raise IndexError(f"{text(node)}: {index}")
    return owner[index]


def lambda_expression(node: Node, template: Template) -> Lambda:
    argument, result = uncommented(node)
    return Lambda(lambda value: evaluate(result, template.knowing({text(argument): value})))


def call(node: Node, template: Template) -> Value:
    """A function of the table is run; of others name and arguments stand for the result."""
    name, given = node.named_children
    arguments = [evaluate(argument, template) for argument in uncommented(given)]
    function = FUNCTIONS.get(text(name))
    if text(name) == "empty" and isinstance(arguments[0], Unknown):
        return False  # only Azure knows it, so Azure has it
    if function and not any(isinstance(one, Unknown) for one in arguments):
        worked_out: Value = function(*arguments)
        return worked_out
    return Unknown(f"{text(name)}({', '.join(map(bare, arguments))})")


def union(*values: Any) -> Value:
    """Objects by key, the later one's values; or arrays, each element once."""
    if isinstance(values[0], dict):
        return {key: found for value in values for key, found in value.items()}
    elements = [element for value in values for element in value]
    return [one for index, one in enumerate(elements) if one not in elements[:index]]


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "concat": lambda *arrays: [element for array in arrays for element in array],
    "contains": lambda whole, part: part in whole,
    "empty": lambda value: not value,
    "filter": lambda values, is_kept: [one for one in values if is_kept.result(one)],
    "flatten": lambda arrays: [element for array in arrays for element in array],
    "indexOf": lambda values, value: values.index(value) if value in values else -1,
    "join": lambda values, between: between.join(map(str, values)),
    "length": len,
    "map": lambda values, change: [change.result(one) for one in values],
    "range": lambda start, count: list(range(start, start + count)),
    "string": lambda value: value if isinstance(value, str) else json.dumps(value, default=str),
    "toObject": lambda values, key, value: {key.result(one): value.result(one) for one in values},
    "union": union,
}


def choice(node: Node, template: Template) -> Value:
    condition, chosen, otherwise = uncommented(node)
    return evaluate(chosen if holds(condition, template) else otherwise, template)


def condition(node: Node, template: Template) -> Value:
    """`if (condition) body`: None where it does not hold."""
    condition, body = uncommented(node)
    return evaluate(body, template) if holds(condition, template) else None


def holds(node: Node, template: Template) -> bool:
    """Whether a condition holds; NotImplementedError where that cannot be told."""
    value = evaluate(node, template)
    if not isinstance(value, bool):
        raise NotImplementedError(f"condition {text(node)!r}")
    return value


def inner(node: Node, template: Template) -> Value:
    return evaluate(uncommented(node)[0], template)


def unary(node: Node, template: Template) -> Value:
    """`!condition`, or a negative number."""
    operand = inner(node, template)
    match node.children[0].type, operand:
        case "!", bool():
            return not operand
        case "-", int():
            return -operand
    return Unknown(text(node))


def binary(node: Node, template: Template) -> Value:
    left, right = (evaluate(part, template) for part in uncommented(node))
    operator = OPERATORS.get(node.children[1].type)
    if operator is None or isinstance(left, Unknown) or isinstance(right, Unknown):
        raise NotImplementedError(f"condition {text(node)!r}")
    worked_out: Value = operator(left, right)
    return worked_out


OPERATORS: dict[str, Callable[[Any, Any], bool | int]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    ">": lambda left, right: left > right,
    "&&": lambda left, right: left and right,
    "||": lambda left, right: left or right,
    "+": lambda left, right: left + right,
    "*": lambda left, right: left * right,
}


def uncommented(node: Node) -> list[Node]:
    return [part for part in node.named_children if part.type != "comment"]


def bare(value: Value) -> str:
    return value.source if isinstance(value, Unknown) else str(value)


EXPRESSIONS: dict[str, Callable[[Node, Template], Value]] = {
    "array": array,
    "binary_expression": binary,
    "boolean": boolean,
    "call_expression": call,
    "for_statement": loop,
    "identifier": identifier,
    "if_statement": condition,
    "lambda_expression": lambda_expression,
    "member_expression": member,
    "number": number,
    "object": mapping,
    "parenthesized_expression": inner,
    "string": string,
    "subscript_expression": subscript,
    "ternary_expression": choice,
    "unary_expression": unary,
}
