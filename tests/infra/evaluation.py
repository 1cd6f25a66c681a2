"""What a deployment would be given: Bicep expressions worked out as far as possible without Azure.

Promised: literals, interpolation, variables, parameters, module parameters and outputs, loops over
arrays, and the ternary with == are worked out. Not promised: anything only Azure knows; it becomes
an `Unknown` that carries its source text, so that two of them are equal when their sources are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tree_sitter import Node

from tests.infra.bicep import Bicep, Declaration, Kind, child, read, text

type Value = (
    str | int | bool | list[Value] | dict[str, Value] | Unknown | Resource | Template | None
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

    @property
    def type(self) -> str:
        return self.declaration.target.partition("@")[0]

    @property
    def body(self) -> dict[str, Value]:
        value = self.template.worked_out(self.declaration)
        if not isinstance(value, dict):
            raise TypeError(f"{self.declaration.name} has no body that can be worked out")
        return value

    def member(self, key: str) -> Value:
        """The resource's name; any other member only Azure knows: the name tells it apart."""
        name = self.body["name"]
        return name if key == "name" else Unknown(f"{bare(name)}.{key}")


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """A Bicep file together with the values of its parameters."""

    bicep: Bicep
    arguments: Mapping[str, Value] = field(default_factory=dict)

    def value(self, name: str) -> Value:
        """What a name stands for; KeyError if the file declares no such name."""
        if name in self.arguments:
            return self.arguments[name]
        declared = self.bicep.of(Kind.PARAMETER, Kind.VARIABLE, Kind.RESOURCE, Kind.MODULE)[name]
        match declared.kind:
            case Kind.RESOURCE:
                return Resource(self, declared)
            case Kind.MODULE:
                return self.module(name)
        return self.worked_out(declared)

    def worked_out(self, declared: Declaration) -> Value:
        """The right-hand side of a declaration; KeyError for a parameter that was not given."""
        if declared.expression is None:
            raise KeyError(f"{self.bicep.path.name}: {declared.name} was not given")
        return evaluate(declared.expression, self)

    def module(self, name: str) -> "Template":
        """The file a module names, with the parameters this template gives it."""
        declared = self.bicep.of(Kind.MODULE)[name]
        match self.worked_out(declared):
            case {"params": dict(arguments)}:
                return Template(read(self.bicep.module_file(declared)), arguments)
        raise TypeError(f"{name} is given no parameters")

    def output(self, name: str) -> Value:
        return self.worked_out(self.bicep.of(Kind.OUTPUT)[name])

    def resource(self, name: str) -> dict[str, Value]:
        """The body of a resource, worked out."""
        return Resource(self, self.bicep.of(Kind.RESOURCE)[name]).body

    def resources(self) -> list[Resource]:
        return [Resource(self, found) for found in self.bicep.of(Kind.RESOURCE).values()]


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
    return [
        evaluate(body, Template(template.bicep, {**template.arguments, **names}))
        for names in rounds
    ]


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


def call(node: Node, template: Template) -> Unknown:
    """A function is never run: its name and worked-out arguments stand for its result."""
    function, arguments = node.named_children
    values = (bare(evaluate(argument, template)) for argument in arguments.named_children)
    return Unknown(f"{text(function)}({', '.join(values)})")


def choice(node: Node, template: Template) -> Value:
    condition, chosen, otherwise = uncommented(node)
    return evaluate(chosen if holds(condition, template) else otherwise, template)


def holds(node: Node, template: Template) -> bool:
    """Whether `left == right`; NotImplementedError for any other condition."""
    if node.type != "binary_expression" or node.children[1].type != "==":
        raise NotImplementedError(f"condition {text(node)!r}")
    left, right = node.named_children
    return evaluate(left, template) == evaluate(right, template)


def uncommented(node: Node) -> list[Node]:
    return [part for part in node.named_children if part.type != "comment"]


def bare(value: Value) -> str:
    return value.source if isinstance(value, Unknown) else str(value)


EXPRESSIONS: dict[str, Callable[[Node, Template], Value]] = {
    "array": array,
    "boolean": boolean,
    "call_expression": call,
    "for_statement": loop,
    "identifier": identifier,
    "member_expression": member,
    "number": number,
    "object": mapping,
    "string": string,
    "ternary_expression": choice,
}
