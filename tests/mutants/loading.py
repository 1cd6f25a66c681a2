"""Run the product with a mutant in it, in this process.

Functions get their new code in place, so that whoever imported one has that, too. A changed value
takes the place of the old one in every module that imported it by its name.
"""

import ast
import gc
import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import CodeType, FunctionType, ModuleType
from unittest.mock import patch

from tests.mutants.mutant import ROOT, Mutant


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """The product with the change, until the end of the block. Raises MutantDoesNotFit."""
    module = importlib.import_module(mutant.path.removesuffix(".py").replace("/", "."))
    healthy = (ROOT / mutant.path).read_text("utf-8")
    broken = mutant.change(healthy)
    with ExitStack() as changes:
        exchange_values(module, healthy, broken, changes)
        exchange_functions(str(module.__file__), broken, changes)
        yield


def exchange_functions(path: str, source: str, changes: ExitStack) -> None:
    """Give every function and method of a file the code that it has in the source."""
    codes = codes_by_name(compile(source, path, "exec", dont_inherit=True))
    for function in gc.get_objects():
        # A function in a function is in its code, and what dataclasses write is in no file.
        if type(function) is FunctionType and function.__code__.co_filename == path:
            healthy = function.__code__
            broken = codes.get(healthy.co_qualname, healthy)
            if broken != healthy and "<" not in healthy.co_qualname:
                changes.callback(setattr, function, "__code__", healthy)
                function.__code__ = broken


def codes_by_name(code: CodeType) -> Mapping[str, CodeType]:
    found = {code.co_qualname: code}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found |= codes_by_name(inner)
    return found


def exchange_values(module: ModuleType, healthy: str, broken: str, changes: ExitStack) -> None:
    """Assign what differs anew, and give it to each module that imported it by its name."""
    known = {ast.dump(statement) for statement in ast.parse(healthy).body}
    for statement in ast.parse(broken).body:
        match statement:
            case ast.Assign([ast.Name(name)]) | ast.AnnAssign(ast.Name(name)):
                if ast.dump(statement) in known:
                    continue
                namespace = dict(vars(module))
                old = namespace[name]
                exec(compile(ast.Module([statement], []), "", "exec", dont_inherit=True), namespace)
                for holder in list(sys.modules.values()):
                    if getattr(holder, name, None) is old:
                        changes.enter_context(patch.object(holder, name, namespace[name]))
