"""Drives `abx mcp` with the Model Context Protocol's own Python SDK: `drive_mcp.py ABX IMAGE DIR MODE`.

DIR is a directory that the server is told to allow. MODE is how the SDK connects: `legacy` (with `initialize`) or
`auto` (the newest that both sides know). Ends with 0 when everything held.
"""

import asyncio
import json
import os
import sys

import jsonschema
from mcp import MCPError, StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client

ABX, IMAGE, DIR, MODE = sys.argv[1:]
LIMIT = 120

READ_ONLY = {
    "session_list", "session_get", "exec_list", "exec_logs", "exec_wait", "file_read", "file_list", "snapshot_list",
}
DESTRUCTIVE = {
    "session_stop", "session_save", "session_delete", "exec_run", "exec_start", "exec_kill", "file_write",
    "snapshot_delete",
}
ADDITIVE = {"session_start", "session_resume", "session_fork"}


def server(*options):
    env = {name: os.environ[name] for name in ("HOME", "ABX_HOME", "PATH")}
    return stdio_client(StdioServerParameters(command=ABX, args=["mcp", *options], env=env, cwd="/"))


def connect(*options):
    return Client(server(*options), mode=MODE, read_timeout_seconds=LIMIT)


class Tools:
    """Calls tools, and checks each result against the schema that the server gave for it."""

    def __init__(self, client):
        self.client = client
        self.schemas = {}

    async def load(self):
        listed = (await self.client.list_tools()).tools
        self.schemas = {tool.name: tool for tool in listed}
        return listed

    async def raw(self, name, /, **arguments):
        return await self.client.call_tool(name, arguments)

    async def __call__(self, name, /, **arguments):
        jsonschema.validate(arguments, self.schemas[name].input_schema)
        result = await self.raw(name, **arguments)
        assert not result.is_error, f"{name}: {result.content}"
        jsonschema.validate(result.structured_content, self.schemas[name].output_schema)
        assert json.loads(result.content[0].text) == result.structured_content
        assert len(result.content[0].text) <= 65_536, f"{name} gave {len(result.content[0].text)} bytes"
        return result.structured_content

    async def refused(self, name, /, **arguments):
        result = await self.raw(name, **arguments)
        assert result.is_error and result.structured_content is None, f"{name} succeeded: {result}"
        error = json.loads(result.content[0].text)
        assert error["message"] and error["data"]["kind"], error
        return error


def look_at(tools):
    names = {tool.name for tool in tools}
    assert names == READ_ONLY | DESTRUCTIVE | ADDITIVE, names ^ (READ_ONLY | DESTRUCTIVE | ADDITIVE)
    for tool in tools:
        hints = tool.annotations
        assert hints.read_only_hint == (tool.name in READ_ONLY), tool.name
        assert hints.destructive_hint == (tool.name in DESTRUCTIVE), tool.name
        assert hints.idempotent_hint is not None and hints.open_world_hint is not None, tool.name
        assert tool.title and len(tool.description) > 20, tool.name
        for schema in (tool.input_schema, tool.output_schema):
            assert schema["type"] == "object" and "$ref" not in json.dumps(schema), tool.name
            jsonschema.Draft202012Validator.check_schema(schema)
        assert tool.input_schema["additionalProperties"] is False, tool.name
        assert '"null"' not in json.dumps(tool.input_schema), tool.name


async def sessions(call):
    started = await call("session_start", name="mcp", image=IMAGE, metadata={"made": "by a test"}, env={"SECRET": "s3"})
    assert started["status"] == "running" and started["env"] == {"SECRET": "***"}, started
    assert (await call.refused("session_start", name="mcp", image=IMAGE))["data"]["kind"] == "session_exists"
    listed = (await call("session_list"))["sessions"]
    assert [session["name"] for session in listed] == ["mcp"] and "env" not in listed[0], listed
    assert (await call("session_list", status=["lost"])) == {"sessions": []}
    missing = await call.refused("session_get", name="nobody")
    assert missing["data"]["kind"] == "session_not_found" and missing["data"]["hint"], missing
    assert (await call("session_get", name="mcp"))["metadata"] == {"made": "by a test"}


async def commands(call):
    ran = await call("exec_run", session="mcp", cmd=["sh", "-c", "cat; echo $SECRET >&2; exit 3"], stdin="hello")
    assert (ran["stdout"], ran["stderr"], ran["exit_code"], ran["truncated"]) == ("hello", "s3\n", 3, False), ran
    long = await call("exec_run", session="mcp", cmd=["sh", "-c", "seq 1 300000; echo the end"])
    assert long["truncated"] and long["stdout"].startswith("1\n2\n") and long["stdout"].endswith("the end\n")
    assert long["stdout_bytes"] > 1_000_000 and "bytes are left out here" in long["stdout"]
    late = await call("exec_run", session="mcp", cmd=["sleep", "1000"], timeout=200)
    assert late["exit_code"] == 124, late
    missing = await call("exec_run", session="mcp", cmd=["no-such"])
    assert missing["exit_code"] == 127 and "not found" in missing["reason"], missing
    assert (await call.refused("exec_run", session="nobody", cmd=["ls"]))["data"]["kind"] == "session_not_found"
    for wrong in ({"cmd": "ls"}, {"cmd": []}, {"cmd": ["ls"], "tty": True}):
        assert (await call.refused("exec_run", session="mcp", **wrong))["data"]["kind"] == "invalid_params"

    begun = await call("exec_start", session="mcp", cmd=["sh", "-c", "seq 1 20000; exit 4"])
    ended = await call("exec_wait", id=begun["id"])
    assert (ended["status"], ended["exit_code"]) == ("exited", 4), ended
    text, start = "", 0
    for _ in range(100):
        logs = await call("exec_logs", id=begun["id"], stdout_from=start)
        text, start = text + logs["stdout"], logs["stdout_next"]
        if logs["ended"]:
            break
    assert text == "".join(f"{number}\n" for number in range(1, 20001)), len(text)

    raw = await call("exec_run", session="mcp", cmd=["printf", "a\\377b"])
    assert (raw["stdout"], raw["encoding"], raw["stdout_bytes"]) == ("Yf9i", "base64", 3), raw
    zeros = await call("exec_run", session="mcp", cmd=["sh", "-c", "z() { head -c 30000 /dev/zero; echo end; }; z; z >&2"])
    for stream in (zeros["stdout"], zeros["stderr"]):
        assert stream.startswith("\0") and stream.endswith("\0end\n") and "left_out" not in zeros, zeros
    assert zeros["truncated"] and zeros["encoding"] == "utf-8"

    begun = await call("exec_start", session="mcp", cmd=["sh", "-c", "y() { yes | head -c 60000; }; y; y >&2"])
    await call("exec_wait", id=begun["id"])
    out, err, logs = "", "", {"ended": False}
    while not logs["ended"]:
        logs = await call("exec_logs", id=begun["id"], stdout_from=len(out), stderr_from=len(err))
        out, err = out + logs["stdout"], err + logs["stderr"]
        assert (logs["stdout_next"], logs["stderr_next"]) == (len(out), len(err)) and "left_out" not in logs, logs
    assert out == err == "y\n" * 30000

    begun = await call("exec_start", session="mcp", cmd=["sleep", "1000"])
    assert (await call("exec_wait", id=begun["id"], timeout=10))["status"] == "running"
    assert (await call("exec_list", session="mcp"))["execs"][0]["id"] == begun["id"]
    await call("exec_kill", id=begun["id"])
    assert (await call("exec_wait", id=begun["id"]))["status"] == "exited"


async def files(call):
    written = await call("file_write", session="mcp", path="/srv/new/note", content="grüße\n", create_dirs=True)
    assert written["path"] == "/srv/new/note", written
    assert (await call("file_read", session="mcp", path="/srv/new/note"))["content"] == "grüße\n"
    await call("exec_run", session="mcp", cmd=["sh", "-c", "yes | head -c 100000 > /srv/long"])
    part = await call("file_read", session="mcp", path="/srv/long", limit=1_000_000)
    assert part["truncated"] and len(part["content"]) == 32768 and part["size_bytes"] == 100000
    await call("exec_run", session="mcp", cmd=["sh", "-c", "head -c 20000 /dev/zero > /srv/zeros"])
    content, part = "", {"truncated": True}
    while part["truncated"]:
        part = await call("file_read", session="mcp", path="/srv/zeros", offset=len(content))
        content += part["content"]
        assert part["offset_next"] == len(content) > 0, part
    assert content == "\0" * 20000
    assert (await call.refused("file_read", session="mcp", path="/none"))["data"]["kind"] == "file_not_found"
    listed = await call("file_list", session="mcp", path="/srv")
    assert [entry["name"] for entry in listed["entries"]] == ["long", "new", "zeros"], listed
    await call("exec_run", session="mcp", cmd=["sh", "-c", "mkdir /many; cd /many; seq 1 3000 | while read n; do : > file$n; done"])
    many = await call("file_list", session="mcp", path="/many")
    assert len(many["entries"]) + many["left_out"]["entries"] == 3000, many["left_out"]


async def snapshots(call):
    saved = await call("session_save", name="mcp", snapshot="one", note="first")
    assert (saved["session"]["status"], saved["snapshot"]["name"]) == ("saved", "one"), saved
    assert [snapshot["name"] for snapshot in (await call("snapshot_list", name="mcp"))["snapshots"]] == ["one"]
    forked = await call("session_fork", name="mcp", new_name="mcp-fork", snapshot="one")
    assert forked["status"] == "running", forked
    assert (await call("file_read", session="mcp-fork", path="/srv/new/note"))["content"] == "grüße\n"
    assert (await call("session_resume", name="mcp"))["status"] == "running"
    assert (await call("session_stop", name="mcp", grace_ms=0))["status"] == "stopped"
    assert (await call("session_delete", name="mcp-fork"))["deleted"] == "mcp-fork"
    assert (await call("snapshot_delete", snapshots=["one"])) == {"deleted": ["one"]}
    assert (await call("session_delete", name="mcp"))["deleted"] == "mcp"


async def boundaries(call):
    for place in ("/etc", DIR + "/../..", "relative"):
        error = await call.refused("session_start", name="w", image=IMAGE, workspace={"source": place, "target": ""})
        assert error["data"]["kind"] == "invalid_params" and "workspace" in error["message"], error
    assert (await call.refused("session_get", name="x", op="y"))["data"]["kind"] == "invalid_params"
    try:
        await call.raw("daemon_shutdown")
        raise AssertionError("a tool that is not there was called")
    except MCPError as error:
        assert "daemon_shutdown" in str(error), error
    work = await call("session_start", name="w", image=IMAGE, workspace={"source": DIR, "target": ""})
    assert work["workspace"] == {"source": os.path.realpath(DIR), "target": "/workspace", "read_only": False}, work
    await call("session_delete", name="w")


async def side_by_side(client, call):
    """A slow call holds up no other, tells that it goes on, and leaves nothing behind when its caller gives up."""
    await call("session_start", name="s", image=IMAGE)
    told = []

    async def hear(progress, total, message):
        told.append((progress, message))

    slow = asyncio.create_task(client.call_tool(
        "exec_run", {"session": "s", "cmd": ["sleep", "1000"], "timeout": 0}, progress_callback=hear))
    running = []
    while not running:
        running = [one for one in (await call("exec_list", session="s"))["execs"] if one["status"] == "running"]
    while not told:
        await call("session_list")
        await asyncio.sleep(0.05)
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)
    assert (await call("exec_wait", id=running[0]["id"]))["status"] == "exited"
    await call("session_delete", name="s")


async def main():
    async with connect("--allow-dir", DIR) as client:
        assert client.server_info.name == "abx" and "exec_run" in client.instructions
        call = Tools(client)
        look_at(await call.load())
        await sessions(call)
        await commands(call)
        await files(call)
        await snapshots(call)
        await boundaries(call)
        await side_by_side(client, call)
    async with connect("--read-only") as client:
        call = Tools(client)
        assert {tool.name for tool in await call.load()} == READ_ONLY
        try:
            await call.raw("session_start", name="x")
            raise AssertionError("a tool that is not offered was called")
        except MCPError:
            pass
    async with connect() as client:
        call = Tools(client)
        await call.load()
        assert "workspace" not in call.schemas["session_start"].input_schema["properties"]
        error = await call.refused("session_start", name="w", workspace={"source": DIR, "target": ""})
        assert "--allow-dir" in error["data"]["hint"], error
    print("all held")


asyncio.run(asyncio.wait_for(main(), 300))
