"""A session in the terms of the older SDK: the same fields, under the same two spellings.

Values may be given and read as ``sandbox_id`` or as ``sandboxId``; files of the older SDK have the latter.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from typing import Any, Dict, Mapping, Optional, Type, TypeVar, Union

from .models import Session, format_time, parse_time

_Model = TypeVar("_Model", bound="_Aliased")


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(word.capitalize() for word in tail)


class _Aliased:
    """What both models can do: be read from and written as mappings, under either spelling."""

    extra: Dict[str, Any]

    @classmethod
    def _names(cls) -> Dict[str, str]:
        """Each field by every spelling of it."""
        found = {}
        for each in fields(cls):  # type: ignore[arg-type]
            if each.name != "extra":
                found[_camel(each.name)] = found[each.name] = each.name
        return found

    @classmethod
    def _extra_names(cls) -> Mapping[str, str]:
        """What is known of ``extra``, by every spelling: kept under field names, written under either."""
        return {}

    def _keep(self, key: str, value: Any) -> None:
        """Keeps what is no field; one that is there already stays where the other spelling says nothing."""
        key = self._extra_names().get(key, key)
        if value is not None or key not in self.extra:
            self.extra[key] = value

    @classmethod
    def model_validate(cls: Type[_Model], data: Union[Mapping[str, Any], _Model]) -> _Model:
        """From a mapping with either spelling. What is not known is kept in ``extra``.

        Raises ValueError where a field has a value that it cannot have.
        """
        if isinstance(data, cls):
            return data
        if not isinstance(data, Mapping):
            raise ValueError(f"{cls.__name__} is made from an object, not from {type(data).__name__}")
        names = cls._names()
        values: Dict[str, Any] = {}
        extra: Dict[str, Any] = {}
        for key, value in data.items():
            if key not in names:
                extra[key] = value
            elif value is not None or names[key] not in values:
                values[names[key]] = value
        made = cls(**values)
        for key, value in extra.items():
            made._keep(key, value)
        return made

    @classmethod
    def from_dict(cls: Type[_Model], data: Mapping[str, Any]) -> _Model:
        """As :meth:`model_validate`."""
        return cls.model_validate(data)

    def _take(self, aliases: Mapping[str, Any]) -> None:
        """Takes the keywords of a call that are no field names: other spellings, and what is kept aside."""
        names, values = self._names(), {}
        self.extra = {}
        for key, value in aliases.items():
            if key in names:
                values[names[key]] = value
            elif key == "extra" and isinstance(value, Mapping):
                for each, kept_value in value.items():
                    self._keep(each, kept_value)
            else:
                self._keep(key, value)
        if values:
            kept, given = self.extra, {each: getattr(self, each) for each in self._names().values()}
            type(self).__init__(self, **{**given, **values})
            self.extra.update(kept)

    @classmethod
    def model_validate_json(cls: Type[_Model], text: Union[str, bytes]) -> _Model:
        """From the text of a file of the older SDK; a byte order mark is passed over.

        Raises ValueError where it is not JSON, or a field has a value that it cannot have.
        """
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig")
        return cls.model_validate(json.loads(text))

    def model_dump(self, *, by_alias: bool = False, mode: str = "python") -> Dict[str, Any]:
        """As a mapping: field names, or camelCase with ``by_alias``; with ``mode="json"`` times are text."""
        dumped: Dict[str, Any] = {}
        for each in fields(self):  # type: ignore[arg-type]
            if each.name == "extra":
                continue
            value = getattr(self, each.name)
            if isinstance(value, _Aliased):
                # The older SDK wrote what is inside with field names.
                value = value.model_dump(mode=mode)
            elif isinstance(value, datetime) and mode == "json":
                value = format_time(value)
            elif isinstance(value, dict):
                value = dict(value)
            dumped[_camel(each.name) if by_alias else each.name] = value
        names = self._extra_names()
        return {**dumped, **{_camel(k) if by_alias and k in names else k: v for k, v in self.extra.items()}}

    def to_dict(self, by_alias: bool = True) -> Dict[str, Any]:
        """As it stands in a file: camelCase, times as text."""
        return self.model_dump(by_alias=by_alias, mode="json")

    def model_dump_json(self, *, by_alias: bool = False, indent: Optional[int] = None) -> str:
        """As JSON text."""
        return json.dumps(self.model_dump(by_alias=by_alias, mode="json"), ensure_ascii=False, indent=indent)

    def __getattr__(self, name: str) -> Any:
        known = type(self)._names().get(name)
        if known is not None and known != name:
            return getattr(self, known)
        key, extra = type(self)._extra_names().get(name), self.__dict__.get("extra", {})
        if key not in extra:
            raise AttributeError(f"{type(self).__name__} has no {name!r}")
        return extra[key]


def _string_map(value: Any) -> Dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ValueError(f"metadata and envs are objects, not {type(value).__name__}")
    return {str(k): v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for k, v in value.items()}


@dataclass(init=False)
class SessionConfig(_Aliased):
    """What a session was to be."""

    name: str
    description: Optional[str]
    sandbox_template: str
    auto_connect: bool
    ttl: Optional[int]
    envs: Dict[str, str]
    metadata: Dict[str, str]
    extra: Dict[str, Any] = field(repr=False)

    def __init__(
        self,
        name: str = "",
        description: Optional[str] = None,
        sandbox_template: str = "base",
        auto_connect: bool = True,
        ttl: Optional[int] = None,
        envs: Optional[Mapping[str, str]] = None,
        metadata: Optional[Mapping[str, str]] = None,
        **aliases: Any,
    ) -> None:
        self.name = name
        self.description = description
        self.sandbox_template = sandbox_template
        self.auto_connect = auto_connect
        self.ttl = ttl
        self.envs = _string_map(envs)
        self.metadata = _string_map(metadata)
        self._take(aliases)


@dataclass(init=False)
class SessionInfo(_Aliased):
    """A session, as the older SDK describes one."""

    name: str
    sandbox_id: Optional[str]
    template: str
    status: str
    created_at: datetime
    last_connected: Optional[datetime]
    metadata: Dict[str, str]
    session_id: str
    api_url: str
    domain: str
    envd_access_token: str = field(repr=False)
    provider: Optional[str]
    config: Optional[SessionConfig]
    extra: Dict[str, Any] = field(repr=False)

    def __init__(
        self,
        name: str,
        sandbox_id: Optional[str] = None,
        template: Optional[str] = "base",
        status: Optional[str] = "running",
        created_at: Union[datetime, str, None] = None,
        last_connected: Union[datetime, str, None] = None,
        metadata: Optional[Mapping[str, Any]] = None,
        session_id: Optional[str] = "",
        api_url: Optional[str] = "",
        domain: Optional[str] = "",
        envd_access_token: Optional[str] = "",
        provider: Optional[str] = None,
        config: Union[SessionConfig, Mapping[str, Any], None] = None,
        **aliases: Any,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError("a session has a name")
        self.name = name
        self.sandbox_id = sandbox_id
        self.template = template or "base"
        self.status = status or "unknown"
        self.created_at = parse_time(created_at) or datetime.now(timezone.utc)
        self.last_connected = parse_time(last_connected)
        self.metadata = _string_map(metadata)
        self.session_id = session_id or ""
        self.api_url = api_url or ""
        self.domain = domain or ""
        self.envd_access_token = envd_access_token or ""
        self.provider = provider
        self.config = None if config is None else SessionConfig.model_validate(config)
        self._take(aliases)

    @classmethod
    def from_session(cls, session: Session) -> "SessionInfo":
        """What the older SDK knows of a session of this daemon; the rest is in ``extra``, as the daemon gave
        it and None where there is nothing. It may be read as ``expires_at`` or ``expiresAt`` too.
        """
        return cls(
            name=session.name,
            sandbox_id=session.sandbox_id,
            template=session.template,
            status=session.status,
            created_at=session.created_at,
            last_connected=session.last_connected,
            metadata=dict(session.metadata),
            session_id=session.id,
            extra={key: session.raw.get(key) for key in _OF_OURS},
        )

    @classmethod
    def _extra_names(cls) -> Mapping[str, str]:
        return _SPELLINGS

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self.sandbox_id or ""

    def to_row(self, namespace: Optional[str]) -> Dict[str, Any]:
        """As ``store.save`` takes it."""
        dumped = self.model_dump(by_alias=True, mode="json")
        row = {key: dumped.pop(_camel(key)) for key in _COLUMNS}
        for key, value in dumped.items():
            if key not in row and key not in _SPELLINGS and key != "namespace":
                row[key] = value
        if namespace is not None:
            row["namespace"] = namespace
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "SessionInfo":
        """As ``store.load`` gives it."""
        return cls.model_validate({key: value for key, value in row.items() if key != "namespace"})


#: What a row of the table has places for; everything else is kept as it came.
_COLUMNS = ("name", "sandbox_id", "template", "status", "created_at", "last_connected", "metadata")

#: What a session of this daemon has beside that.
_OF_OURS = (
    "agent",
    "sandbox",
    "image",
    "engine",
    "operation",
    "reason",
    "expires_at",
    "last_active",
    "exec_count",
    "snapshot",
    "snapshots",
    "attention",
    "attention_note",
    "attention_at",
    "idle_ms",
    "idle_action",
    "idle_since",
    "idle_at",
    "busy",
    "on_boot",
    "keep",
    "runtime",
    "warnings",
    "revision",
)

#: The same by every spelling.
_SPELLINGS = {spelling: name for name in _OF_OURS for spelling in (_camel(name), name)}
