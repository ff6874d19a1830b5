"""What the ``truncation`` check asks for: requests whose answer is one document, and the rules it must keep.

The first case is the reference ladder's. Texts are bounded in every other one, so that the answer
ends within the control budget whatever a small model would rather write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """One request. ``tools`` maps names to parameter schemas; with none, the answer itself is the document.

    ``choice`` is the ``tool_choice``: "required", or the name of a tool.
    """

    id: str
    prompt: str
    schema: Schema | None = None
    tools: Mapping[str, Schema] | None = None
    choice: str = "required"
    descriptions: Mapping[str, str] | None = None
    ladder: bool = False

    @property
    def finish(self) -> str:
        """The finish_reason of an answer that nothing cut."""
        return "stop" if self.tools is None else "tool_calls"

    def body(self, max_tokens: int, stop: str | None = None) -> dict[str, Any]:
        """The request."""
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": self.prompt}],
            "temperature": 0,
            "max_tokens": max_tokens,
        }
        if self.tools is None:
            form = {"name": self.id, "strict": True, "schema": self.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        else:
            named = {"type": "function", "function": {"name": self.choice}}
            body["tools"] = [self._tool(name, schema) for name, schema in self.tools.items()]
            body["tool_choice"] = "required" if self.choice == "required" else named
        return body if stop is None else {**body, "stop": [stop]}

    def schema_of(self, tool: str | None) -> Schema | None:
        """The schema that a document of this answer must keep; None where no such tool may be called."""
        if self.tools is None:
            return self.schema
        allowed = self.tools if self.choice == "required" else {self.choice}
        return self.tools.get(tool or "") if tool in allowed else None

    def _tool(self, name: str, schema: Schema) -> dict[str, Any]:
        about = (self.descriptions or {}).get(name, name.replace("_", " ").capitalize() + ".")
        function = {"name": name, "description": about, "parameters": schema}
        return {"type": "function", "function": function}


def closed(properties: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """An object with exactly these properties."""
    rest = {"required": list(properties), "additionalProperties": False, **more}
    return {"type": "object", "properties": dict(properties), **rest}


def text(longest: int, shortest: int = 0) -> dict[str, Any]:
    """A string of bounded length, in code points."""
    return {"type": "string", "minLength": shortest, "maxLength": longest}


WEATHER = closed({"city": {"type": "string"}, "units": {"type": "string", "enum": ["celsius", "fahrenheit"]}})

DISPATCH = closed(
    {
        "job": closed(
            {
                "mode": {"enum": ["dry-run", "apply", "rollback"]},
                "targets": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 2,
                    "items": closed(
                        {"path": text(12, 1), "retries": {"type": "integer", "minimum": 2, "maximum": 9}}
                    ),
                },
            }
        ),
        "notify": {"type": "boolean"},
    }
)  # fmt: skip

MEASURE = closed(
    {
        "straße": {"enum": ["Königsallee", "Unter den Linden", "東京都港区", "Улица"]},
        "größe": closed(
            {
                "länge": {"type": "integer", "minimum": 10, "maximum": 99},
                "einheit": {"enum": ["mètre", "см", "尺", "ft"]},
            }
        ),
        "notiz": text(8, 2),
    }
)

PERSON = closed(
    {
        "name": text(16, 1),
        "born": {"type": "string", "format": "date"},
        "address": closed({"street": text(12), "zip": {"type": "string", "pattern": "^[0-9]{5}$"}}),
        "tags": {
            "type": "array", "minItems": 1, "maxItems": 3, "items": {"enum": ["new", "vip", "staff"]},
        },
        "manager": {"anyOf": [{"type": "null"}, closed({"name": text(8, 1)})]},
    }
)  # fmt: skip

CHAIN: dict[str, Any] = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": closed(
            {
                "value": {"type": "integer", "minimum": 10, "maximum": 99},
                "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
            }
        )
    },
}

VALUES = closed(
    {
        "code": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"},
        "id": {"type": "string", "format": "uuid"},
        "host": {"type": "string", "format": "ipv4"},
        "amount": {"type": "number", "minimum": 12.5, "maximum": 99, "multipleOf": 0.25},
        "offset": {"type": "integer", "minimum": -40, "maximum": -15},
    }
)

MARKS = {
    "type": "array",
    "minItems": 3,
    "maxItems": 3,
    "items": {"enum": ['say "no"', "back\\slash", "line\nbreak", "🙂 fine", "e\u0301t\u00e9", "\u0007"]},
}

CASES = (
    Case("weather", "What is the weather in Paris? Use fahrenheit.",
         tools={"get_weather": WEATHER}, ladder=True,
         descriptions={"get_weather": "Get the current weather for a city."}),
    Case("dispatch", "Apply the job to src/main.c with 3 retries, and notify me.",
         tools={"dispatch_job": DISPATCH}, choice="dispatch_job"),
    Case("measure", "Miss die Königsallee in mètre und schreib eine Notiz.", tools={"messen": MEASURE}),
    Case("select", "Send Ana a note that says hello.",
         tools={"get_weather": WEATHER, "send_note": closed({"to": text(10, 1), "body": text(20, 1)}),
                "list_files": closed({"folder": text(12)}, required=[])}),
    Case("person", "Write a person record as JSON: Ada, born 1990-05-17, 12 Elm Street, 90210.", PERSON),
    Case("chain", 'Repeat exactly: {"value":12,"next":{"value":34,"next":null}}', CHAIN),
    Case("values", "Write an example record as JSON with code, id, host, amount and offset.", VALUES),
    Case("marks", "Write three marks as a JSON array.", MARKS),
)  # fmt: skip

BY_ID = {case.id: case for case in CASES}
