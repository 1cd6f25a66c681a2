"""A person who opens pages and sends forms as a browser does, or types commands, and is counted."""

import io
import json
import re
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from cli.__main__ import main as run_command
from proof.testbed.command import RunFailed

# A look into an error queue with many sessions takes that long.
ANSWER_SECONDS_MAX = 300.0
COST = re.compile(r"This page cost ([\d.]+) request units")


@dataclass
class Button:
    name: str
    value: str
    address: str
    text: str = ""


@dataclass
class Form:
    """A form below a heading: its fields as a browser would send them, and its buttons."""

    heading: str
    address: str
    method: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    # What is sent only when it is marked.
    unmarked: list[tuple[str, str]] = field(default_factory=list)
    buttons: list[Button] = field(default_factory=list)


class PageReader(HTMLParser):
    """Reads links and forms out of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self.forms: list[Form] = []
        self.headings: list[str] = []
        self.form: Form | None = None
        self.taking: Callable[[str], None] | None = None

    def handle_starttag(self, tag: str, given: Sequence[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in given}
        form = self.form
        if tag == "a":
            self.links.append(("", said.get("href", "")))
            self.taking = self.name_link
        elif tag in ("h1", "h2", "h3"):
            self.headings.append("")
            self.taking = self.name_heading
        elif tag == "form":
            heading = self.headings[-1] if self.headings else ""
            self.form = Form(heading, said.get("action", ""), said.get("method", "get"))
            self.forms.append(self.form)
        elif form is None:
            return
        elif tag == "input" and said.get("type") == "checkbox" and "checked" not in said:
            form.unmarked.append((said["name"], said.get("value", "on")))
        elif tag == "input":
            form.fields.append((said.get("name", ""), said.get("value", "")))
        elif tag in ("textarea", "select"):
            form.fields.append((said.get("name", ""), ""))
        elif tag == "button":
            address = said.get("formaction", form.address)
            form.buttons.append(Button(said.get("name", ""), said.get("value", ""), address))
            self.taking = self.name_button

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self.form = None
        if tag in ("a", "h1", "h2", "h3", "button"):
            self.taking = None

    def handle_data(self, data: str) -> None:
        if self.taking is not None:
            self.taking(data)

    def name_link(self, text: str) -> None:
        self.links[-1] = (self.links[-1][0] + text, self.links[-1][1])

    def name_heading(self, text: str) -> None:
        self.headings[-1] += text

    def name_button(self, text: str) -> None:
        if self.form is not None and self.form.buttons:
            self.form.buttons[-1].text += text


@dataclass
class Person:
    """A person on call. `actions` are the requests that they clicked, or commands; `units` is the
    price that the pages said.
    """

    actions: int = 0
    units: float = 0.0


@dataclass
class PageUser(Person):
    host: str = ""
    key: str = field(default="", repr=False)
    address: str = ""
    text: str = ""
    page: PageReader = field(default_factory=PageReader)

    def open(self, view: str, **parameters: str) -> None:
        """Follow a link that stands on every page, or in the address bar."""
        query = urlencode({"code": self.key, **parameters})
        self.take(f"{self.host}/api/operate{view}?{query}")

    def follow(self, text: str) -> None:
        """Follow the first link with this text in it."""
        for name, address in self.page.links:
            if text in name:
                self.take(self.host + address)
                return
        raise RunFailed(f"the page has no link {text!r}")

    def look_again(self) -> str:
        """Load the page as the browser does by itself; no action. Its headings and text."""
        self.take(self.address, is_clicked=False)
        return self.text

    def find_form(self, heading: str, button: str) -> tuple[Form, Button]:
        for form in self.page.forms:
            if heading in form.heading:
                for one in form.buttons:
                    if one.text.strip().startswith(button):
                        return form, one
        raise RunFailed(f"no form below {heading!r} has a button {button!r}: {self.text[-2000:]}")

    def require(self, text: str) -> None:
        if text not in self.text:
            raise RunFailed(f"the page does not say {text!r}")

    def has_form(self, heading: str) -> bool:
        return any(heading in form.heading for form in self.page.forms)

    def submit(self, heading: str, button: str, *marked: str, **filled: str) -> None:
        """Press a button of a form, with what is marked and filled in."""
        form, pressed = self.find_form(heading, button)
        sent = [(name, filled.get(name, value)) for name, value in form.fields if name]
        sent += [one for one in form.unmarked if one[0] in marked]
        if pressed.name:
            sent.append((pressed.name, pressed.value))
        self.take(self.host + pressed.address, urlencode(sent).encode())

    def take(self, address: str, body: bytes | None = None, *, is_clicked: bool = True) -> None:
        """Load a page, or send a form, and follow where the answer leads; raises RunFailed."""
        self.actions += is_clicked
        headers = {"Sec-Fetch-Site": "same-origin"} if body is not None else {}
        try:
            with urlopen(Request(address, body, headers), timeout=ANSWER_SECONDS_MAX) as answer:  # noqa: S310 - our own host
                self.address, self.text = answer.geturl(), answer.read().decode()
        except HTTPError as error:
            said = re.sub("<[^>]*>", " ", error.read().decode())
            raise RunFailed(f"{address} answered {error.code}: {said[-600:]}") from error
        self.page = PageReader()
        self.page.feed(self.text)
        if cost := COST.search(self.text):
            self.units += float(cost[1])


@dataclass
class CommandUser(Person):
    def run(self, *words: str, ends: Sequence[int] = (0,)) -> Any:
        """Return the JSON that a command prints; raises RunFailed unless it ends so."""
        self.actions += 1
        printed, said = io.StringIO(), io.StringIO()
        with redirect_stdout(printed), redirect_stderr(said):
            ended = run_command([*words, "--json"])
        if ended not in ends:
            output = said.getvalue() + printed.getvalue()
            raise RunFailed(f"lockstep {' '.join(words)} ended with {ended}: {output[-1500:]}")
        return json.loads(printed.getvalue()) if printed.getvalue() else None
