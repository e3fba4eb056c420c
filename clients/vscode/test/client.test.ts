/** The protocol part on a live daemon: without an editor, as any program of Node would use it. */

import assert from "node:assert/strict";
import { chownSync, mkdirSync, readdirSync, readFileSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { CancellationTokenSource, ResponseError } from "vscode-jsonrpc/node";
import { Client, type Progress } from "../src/client/connection";
import { AbxError } from "../src/client/errors";
import { startDaemon } from "../src/client/launch";
import { socketPath } from "../src/client/paths";
import { SessionTable } from "../src/client/sessions";
import { RawStream } from "../src/client/stream";
import type { Event } from "../src/protocol";
import { FakeDaemon, IMAGE, inWorld, NO_ENGINE, PROGRAM, until, within, World } from "./support";

const kind = (wanted: string) => (error: unknown) => error instanceof AbxError && error.kind === wanted;

test("the socket is where the daemon says that it is", async () => {
  const world = new World();
  try {
    mkdirSync(join(world.dir, "disk"));
    symlinkSync(join(world.dir, "disk"), join(world.dir, "link"));
    for (const home of ["short", "link/./home/", "link/../disk/x", `deep/${"d".repeat(100)}`]) {
      for (const socket of [undefined, join(world.dir, "my.sock"), join(world.dir, "s".repeat(120))]) {
        world.env["ABX_HOME"] = `${world.dir}/${home}`;
        if (socket) world.env["ABX_SOCKET"] = socket;
        else delete world.env["ABX_SOCKET"];
        await world.startDaemon();
        const status = JSON.parse(await world.abx("daemon", "status", "--json")) as { socket: string };
        assert.equal(socketPath({}, world.env), status.socket, `${home} ${socket}`);
        await world.stopDaemon();
      }
    }
  } finally {
    await world.dispose();
  }
});

test("what is set goes before the environment", () => {
  const env = { ABX_HOME: "/a", ABX_SOCKET: "/b" };
  assert.equal(socketPath({}, env), "/b");
  assert.equal(socketPath({ socket: "/c" }, env), "/c");
  assert.equal(socketPath({ home: "/no such" }, { ABX_HOME: "/a" }), "/no such/daemon.sock");
  assert.equal(socketPath({ home: "~/x" }, {}), join(process.env["HOME"] ?? "", "x/daemon.sock"));
});

test("nobody listens: the error says what to type, and the daemon is started when asked for", async () => {
  const world = new World();
  try {
    const client = world.client();
    const failure = await client.ready().then(
      () => assert.fail("it does not run"),
      (error: AbxError) => error,
    );
    assert.equal(failure.kind, "daemon_unreachable");
    assert.equal(failure.hint, "abx daemon start");
    await assert.rejects(client.call("session.list", {}), kind("daemon_unreachable"));
    await client.ready({ launch: true });
    assert.deepEqual(await client.call("session.list", {}), []);
    const { pid } = await client.call("daemon.info", {});
    // One that runs already is left as it is.
    await startDaemon(PROGRAM, { home: world.home }, world.env);
    assert.equal((await client.call("daemon.info", {})).pid, pid);
  } finally {
    await world.dispose();
  }
});

test("no program: the error says which setting to change", async () => {
  const world = new World();
  try {
    for (const program of ["/no/such/abx", "no-such-abx"]) {
      const failure = await world
        .client({ program })
        .ready({ launch: true })
        .then(
          () => assert.fail("there is no program"),
          (error: AbxError) => error,
        );
      assert.equal(failure.kind, "program_missing");
      assert.match(failure.text, /no-such-abx|\/no\/such\/abx/);
      assert.match(failure.hint ?? "", /abx\.path/);
    }
  } finally {
    await world.dispose();
  }
});

test("a daemon that cannot start is told in its own words", async () => {
  const world = new World();
  try {
    await assert.rejects(
      world.client({ program: "/bin/false" }).ready({ launch: true }),
      kind("daemon_unreachable"),
    );
    const client = world.client({ home: "/proc/no/home" });
    const failure = await client.ready({ launch: true }).then(
      () => assert.fail("it cannot start"),
      (error: AbxError) => error,
    );
    assert.match(failure.message, /abxd could not be started: .*\/proc\/no\/home/);
  } finally {
    await world.dispose();
  }
});

test(
  "errors carry kind and hint",
  inWorld(async (world) => {
    const client = world.client();
    await assert.rejects(client.call("session.get", { name: "nobody" }), kind("session_not_found"));
    await assert.rejects(client.call("session.start", { name: "a/b" }), kind("invalid_name"));
    await assert.rejects(client.call("session.get", {} as never), kind("invalid_params"));
    await assert.rejects(client.call("no.such" as never, {} as never), kind("method_not_found"));
  }),
);

test(
  "a session from start to delete, with its progress and live in the table",
  { skip: NO_ENGINE },
  inWorld(async (world) => {
    const client = world.client();
    const table = world.table(client);
    const seen: Event[] = [];
    client.onEvent((event) => seen.push(event));
    client.keep();
    const status = (name: string, wanted: string) =>
      until(`${name} to be ${wanted}`, () => table.get(name)?.status === wanted);
    const steps: Progress[] = [];
    const onProgress = (step: Progress) => steps.push(step);

    const started = await client.call(
      "session.start",
      { name: "größe 1", image: IMAGE, metadata: { a: "b" } },
      { onProgress },
    );
    assert.equal(started.status, "running");
    await status("größe 1", "running");
    assert.equal((await client.call("session.stop", { name: "größe 1", grace_ms: 0 })).status, "stopped");
    await status("größe 1", "stopped");
    const { snapshot } = await client.call(
      "session.save",
      { name: "größe 1", note: "a note" },
      { onProgress },
    );
    assert.equal(snapshot.note, "a note");
    await status("größe 1", "saved");
    await client.call("session.resume", { name: "größe 1" }, { onProgress });
    await status("größe 1", "running");
    await client.call(
      "session.fork",
      { name: "größe 1", new_name: "fork", snapshot: snapshot.name },
      { onProgress },
    );
    await status("fork", "running");
    // Somebody else's change comes as well.
    await world.abx("rename", "fork", "renamed");
    await until("the new name", () => table.get("renamed") && !table.get("fork"));
    await client.call("session.delete", { name: "größe 1" });
    await until("it to be gone", () => table.all?.length === 1);
    assert.ok(
      steps.every((step) => typeof step.text === "string" && step.text !== ""),
      JSON.stringify(steps),
    );
    assert.ok(steps.length > 0, "saving tells how far it is");
    const mine = seen.find((event) => event.kind === "session.created");
    assert.equal(mine?.by?.client, "a test");
    assert.ok(seen.some((event) => event.kind === "session.renamed" && event.by?.client === "abx"));
  }),
);

test(
  "after a restart of the daemon nothing is missing and nothing comes twice",
  inWorld(async (world) => {
    const client = world.client();
    const table = world.table(client);
    const seqs: number[] = [];
    let first: number | undefined;
    client.onEvent((event) => {
      if (event.kind === "subscribed") first ??= event.seq;
      else seqs.push(event.seq);
    });
    client.keep();
    await until("a connection", () => client.state.kind === "connected" && first);
    await client.call("store.save", { name: "before" });
    await until("the row", () => table.get("before"));
    for (const name of ["one", "two"]) {
      await world.stopDaemon();
      await until("the loss to be seen", () => client.state.kind === "offline" && table.all === undefined);
      // What happens before this client is back comes all the same.
      await world.startDaemon();
      await world.abx("rpc", "store.save", JSON.stringify({ name }));
      await until("the row", () => table.get(name));
    }
    const last = await client.call("event.list", { since: first as number });
    await until("the last event", () => seqs.at(-1) === last.at(-1)?.seq);
    assert.deepEqual(
      seqs,
      last.map((event) => event.seq),
    );
  }),
);

test(
  "a call that is cancelled is answered at once, and what it began goes on",
  { skip: NO_ENGINE },
  inWorld(async (world) => {
    const client = world.client();
    await client.call("session.start", { name: "a", image: IMAGE });
    const source = new CancellationTokenSource();
    const run = client.call(
      "exec.run",
      { session: "a", cmd: ["sh", "-c", "sleep 1000"] },
      { token: source.token },
    );
    await until("it to run", async () =>
      (await client.call("exec.list", { session: "a" })).some((exec) => exec.status === "running"),
    );
    source.cancel();
    await assert.rejects(within("the answer", run), kind("cancelled"));
    await client.call("session.get", { name: "a" });
  }),
);

test("calls that wait when the connection is lost fail, and the next one connects again", async () => {
  let connections = 0;
  const fake = await FakeDaemon.rpc((rpc) => {
    connections += 1;
    rpc.onRequest("session.list", () => []);
    rpc.onRequest("session.get", () => new Promise(() => undefined));
  });
  const client = new Client({ name: "a test", socket: fake.socket });
  try {
    await client.ready();
    const waiting = client.call("session.get", { name: "a" });
    fake.hangUp();
    await assert.rejects(within("the failure", waiting), kind("daemon_unreachable"));
    assert.deepEqual(await client.call("session.list", {}), []);
    assert.equal(connections, 2);
  } finally {
    client.dispose();
    fake.dispose();
  }
});

test(
  "a socket of another user, or in a directory of another, gets nothing",
  { skip: process.geteuid?.() === 0 ? undefined : "only root may give a file away" },
  async () => {
    let heard = 0;
    const fake = await FakeDaemon.raw((socket) => {
      socket.on("data", () => (heard += 1));
    });
    const client = new Client({ name: "a test", socket: fake.socket });
    try {
      for (const path of [fake.socket, fake.dir]) {
        chownSync(path, 65534, 65534);
        const refused = (error: AbxError) => {
          assert.equal(error.kind, "socket_foreign");
          assert.equal(error.message, `${path} belongs to user 65534, not to this one`);
          assert.match(error.hint ?? "", /ABX_HOME/);
          return true;
        };
        await assert.rejects(within("the refusal", client.ready({ launch: true })), refused);
        const stream = RawStream.open(fake.socket, {
          client: "a test",
          session: "s",
          env: { KEY: "secret" },
        });
        await assert.rejects(within("the refusal", stream), refused);
        chownSync(path, 0, 0);
      }
      assert.equal(heard, 0);
    } finally {
      client.dispose();
      fake.dispose();
    }
  },
);

test("a daemon of another protocol is refused by name, and one without events is used without", async () => {
  const newer = await FakeDaemon.rpc(() => undefined, { protocol: 2, version: "9.9.9" });
  const client = new Client({ name: "a test", socket: newer.socket });
  const older = await FakeDaemon.raw((socket) => {
    // One answer at a time, by hand.
    let text = "";
    socket.on("data", (bytes) => {
      text += bytes.toString();
      for (const [, id, method] of text.matchAll(/"id":(\d+),"method":"([a-z._]+)"/g)) {
        const answer =
          method === "daemon.hello"
            ? { result: { server: "abxd", version: "0.0.1", protocol: 1, pid: 1, home: "/", notice: null } }
            : method === "session.list"
              ? { result: [] }
              : { error: { code: -32601, message: "no such method" } };
        const body = JSON.stringify({ jsonrpc: "2.0", id: Number(id), ...answer });
        socket.write(`Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
      }
      text = "";
    });
  });
  const plain = new Client({ name: "a test", socket: older.socket });
  try {
    await assert.rejects(client.ready(), (error: AbxError) => {
      assert.equal(error.kind, "protocol_mismatch");
      assert.match(error.text, /9\.9\.9 speaks protocol 2.*bring this client up to date/);
      return true;
    });
    assert.deepEqual(await plain.call("session.list", {}), []);
  } finally {
    for (const one of [client, plain, newer, older]) one.dispose();
  }
});

test("a subscriber that fell behind subscribes again from where it was, and lists", async () => {
  const asked: unknown[] = [];
  let lists = 0;
  const fake = await FakeDaemon.rpc((rpc) => {
    rpc.onRequest("session.list", () => {
      lists += 1;
      return [];
    });
    rpc.onRequest("event.subscribe", (params: unknown) => {
      asked.push(params);
      if (asked.length > 1) return 2;
      const event = (seq: number, kind: string) => ({
        seq,
        at: "",
        kind,
        session: null,
        revision: null,
        data: {},
      });
      void rpc.sendNotification("event", event(4, "subscribed"));
      void rpc.sendNotification("event", event(5, "a.kind.of.tomorrow"));
      setImmediate(() => void rpc.sendNotification("event", event(90, "lagged")));
      return 1;
    });
  });
  const client = new Client({ name: "a test", socket: fake.socket });
  const table = new SessionTable(client);
  try {
    await client.ready();
    await until("the second subscription", () => asked.length === 2);
    assert.deepEqual(asked, [{}, { since: 5 }]);
    await until("the list", () => table.all && lists > 0);
  } finally {
    for (const one of [table, client, fake]) one.dispose();
  }
});

test("a subscriber that fell behind and is refused connects again, and goes on from where it was", async () => {
  const asked: unknown[] = [];
  const fake = await FakeDaemon.rpc((rpc) => {
    rpc.onRequest("session.list", () => []);
    rpc.onRequest("event.subscribe", (params: unknown) => {
      asked.push(params);
      if (asked.length === 2) throw new ResponseError(17, "too many", { kind: "limit" });
      const told = (seq: number, kind: string) =>
        rpc.sendNotification("event", { seq, at: "", kind, session: null, revision: null, data: {} });
      if (asked.length === 1) setImmediate(() => void told(7, "subscribed").then(() => told(90, "lagged")));
      return asked.length;
    });
  });
  const client = new Client({ name: "a test", socket: fake.socket });
  const states: string[] = [];
  client.onState(({ kind }) => states.push(kind));
  try {
    client.keep();
    await until("the third subscription", () => asked.length === 3 && client.state.kind === "connected");
    assert.deepEqual(asked, [{}, { since: 7 }, { since: 7 }]);
    assert.deepEqual(states, ["connected", "offline", "connected"]);
  } finally {
    client.dispose();
    fake.dispose();
  }
});

test("a daemon that hangs in any answer that opens a connection is left, also by who fell behind", async () => {
  for (const [hangs, states] of [
    [1, ["offline"]],
    [2, ["connected", "offline", "connected"]],
  ] as const) {
    let asked = 0;
    const fake = await FakeDaemon.rpc((rpc) => {
      rpc.onRequest("event.subscribe", () => {
        asked += 1;
        if (asked === hangs) return new Promise(() => undefined);
        const lagged = { seq: 9, at: "", kind: "lagged", session: null, revision: null, data: {} };
        if (asked === 1) setImmediate(() => void rpc.sendNotification("event", lagged));
        return asked;
      });
    });
    const client = new Client({ name: "a test", socket: fake.socket, answerLimitMs: 200 });
    const seen: string[] = [];
    client.onState(({ kind }) => seen.push(kind));
    try {
      if (hangs === 1) {
        await assert.rejects(client.ready(), (error: AbxError) => {
          assert.equal(error.kind, "daemon_hangs");
          assert.match(error.text, /abx daemon restart/);
          return true;
        });
      } else {
        client.keep();
        await until("the third subscription", () => asked === 3 && client.state.kind === "connected");
      }
      assert.deepEqual(seen, states);
    } finally {
      client.dispose();
      fake.dispose();
    }
  }
});

test("what a daemon that stops has not begun is said in a plain line", async () => {
  let begun = false;
  const fake = await FakeDaemon.rpc((rpc) => {
    rpc.onRequest("session.stop", () => {
      throw new ResponseError(21, "the daemon is stopping", { kind: "shutting_down", begun });
    });
  });
  const client = new Client({ name: "a test", socket: fake.socket });
  const stop = () => client.call("session.stop", { name: "a" });
  try {
    await assert.rejects(stop, { message: "abxd is stopping, and has begun nothing", kind: "shutting_down" });
    begun = true;
    await assert.rejects(stop, { message: "the daemon is stopping", kind: "shutting_down" });
  } finally {
    client.dispose();
    fake.dispose();
  }
});

test("the protocol part knows nothing of the editor", () => {
  const dir = join(__dirname, "../src/client");
  for (const file of readdirSync(dir)) {
    assert.doesNotMatch(readFileSync(join(dir, file), "utf8"), /from "vscode"/, file);
  }
});
