/** Raw streams: commands and terminals, on a live daemon and against one that misbehaves. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Attached, type Ended } from "../src/client/attached";
import { AbxError } from "../src/client/errors";
import { RawStream, type End, type Open } from "../src/client/stream";
import { FakeDaemon, IMAGE, inWorld, NO_ENGINE, until, within, World } from "./support";

const NAME = "a test";
const S = { client: NAME, session: "s" };

/** What a stream gave, and how it ended. */
class Collected {
  readonly out: Buffer[] = [];
  readonly err: Buffer[] = [];
  readonly end: Promise<End>;

  constructor(readonly stream: RawStream) {
    stream.onStdout((bytes) => this.out.push(Buffer.from(bytes)));
    stream.onStderr((bytes) => this.err.push(Buffer.from(bytes)));
    this.end = new Promise((done) => stream.onEnd(done));
  }

  get stdout(): Buffer {
    return Buffer.concat(this.out);
  }

  get stderr(): string {
    return Buffer.concat(this.err).toString();
  }
}

async function session(world: World): Promise<string> {
  const client = world.client();
  await client.call("session.start", { name: "s", image: IMAGE });
  return client.socketPath;
}

async function collect(
  world: World,
  path: string,
  open: Omit<Open, "client" | "session">,
): Promise<Collected> {
  return new Collected(world.own(await RawStream.open(path, { ...S, ...open })));
}

/** A terminal that remembers what it showed. */
class Shown {
  text = "";
  states: string[] = [];
  ended: Ended | undefined;

  constructor(readonly attached: Attached) {
    attached.onText((text) => (this.text += text));
    attached.onState((state) => this.states.push(state));
    attached.onEnd((ended) => (this.ended = ended));
  }

  async shows(what: string): Promise<void> {
    await until(`${what} to be shown`, () => this.text.includes(what)).catch((error: Error) => {
      throw new Error(`${error.message}; shown: ${JSON.stringify(this.text.slice(-2000))}`);
    });
  }
}

test(
  "commands: outputs apart, codes, signals, whole input, and refusals",
  { skip: NO_ENGINE },
  inWorld(async (world) => {
    const path = await session(world);
    const both = await collect(world, path, { cmd: ["sh", "-c", "echo out; echo err >&2; exit 3"] });
    assert.deepEqual(await within("its end", both.end), { kind: "exit", exit_code: 3, reason: null });
    assert.equal(both.stdout.toString(), "out\n");
    assert.equal(both.stderr, "err\n");

    const bytes = Buffer.alloc(1_000_000, 0).map((_, index) => (index * 7) % 256);
    const cat = await collect(world, path, { cmd: ["cat"], stdin: true });
    cat.stream.write(bytes);
    cat.stream.endInput();
    assert.equal((await within("its end", cat.end)).kind, "exit");
    assert.ok(cat.stdout.equals(Buffer.from(bytes)), "every byte came back");

    const signalled = await collect(world, path, { cmd: ["sh", "-c", "echo ready; sleep 1000"] });
    await until("it to run", () => signalled.stdout.length > 0);
    signalled.stream.signal(15);
    const end = await within("its end", signalled.end);
    assert.equal(end.kind === "exit" && end.exit_code, 143);

    // Words that a shell would take apart stay what they are.
    const word = "$(id) `id` ; 'x' \"y\" \\ * \n";
    const echo = await collect(world, path, { cmd: ["printf", "%s", word] });
    await within("its end", echo.end);
    assert.equal(echo.stdout.toString(), word);

    await assert.rejects(
      RawStream.open(path, { client: NAME, session: "nobody", cmd: ["true"] }),
      (error: AbxError) => error.kind === "session_not_found",
    );
    // Closing ends a command.
    const ended = await collect(world, path, { cmd: ["sh", "-c", "echo ready; sleep 1000"] });
    await until("it to run", () => ended.stdout.length > 0);
    ended.stream.dispose();
    const client = world.client();
    await until("it to end", async () =>
      (await client.call("exec.list", { session: "s" })).every((exec) => exec.status === "exited"),
    );
  }),
);

test(
  "a terminal: its size, its end with code and reason, and what is typed",
  { skip: NO_ENGINE },
  inWorld(async (world) => {
    const path = await session(world);
    const open = { ...S, attach: true, terminal: "main", stdin: true, env: { PS1: "ready> " } };
    const one = new Shown(world.own(new Attached(path, { ...open, tty: { cols: 91, rows: 31 } })));
    await one.attached.start();
    one.attached.write("stty size\r");
    await one.shows("31 91");
    one.attached.resize({ cols: 77, rows: 22 });
    one.attached.write("stty size; echo 'größe 漢字 🙂'\r");
    await one.shows("22 77");
    await one.shows("\ngröße 漢字 🙂");
    // Another one sees the same, also what was there before; leaving ends nothing.
    const two = new Shown(world.own(new Attached(path, { ...open, tty: { cols: 77, rows: 22 } })));
    assert.equal((await two.attached.start()).followed, true);
    await two.shows("22 77");
    two.attached.dispose();
    one.attached.write("exit 7\r");
    const ended = await until("its end", () => one.ended);
    assert.equal(ended.exit_code, 7);
    assert.equal(one.states.join(), "opening,open,ended");
    assert.equal(two.ended, undefined);
  }),
);

test(
  "a terminal comes back after the daemon was restarted or killed, under another name too",
  { skip: NO_ENGINE },
  inWorld(async (world) => {
    const path = await session(world);
    const open = { ...S, attach: true, terminal: "main", stdin: true, tty: { cols: 80, rows: 24 } };
    const one = new Shown(world.own(new Attached(path, open)));
    await one.attached.start();
    one.attached.write("x=kept; echo be''fore\r");
    await one.shows("before");
    await world.stopDaemon();
    await until("the loss to be seen", () => one.states.includes("lost"));
    await world.startDaemon();
    await until("it to be back", () => one.states.at(-1) === "open");
    await world.abx("rename", "s", "renamed");
    one.attached.rename("renamed");
    const { pid } = await world.client().call("daemon.info", {});
    process.kill(pid, "SIGKILL");
    await until("the loss to be seen", () => one.states.filter((state) => state === "lost").length === 2);
    await world.startDaemon();
    await until("it to be back", () => one.states.at(-1) === "open");
    one.attached.write("echo $x-af''ter\r");
    await one.shows("kept-after");
    // What ended while the daemon was away is told as ended.
    one.attached.write("exit 5\r");
    assert.equal((await until("its end", () => one.ended)).exit_code, 5);
  }),
);

test(
  "a flood comes whole or is painted anew, and its end after it",
  { skip: NO_ENGINE },
  inWorld(async (world) => {
    const path = await session(world);
    const line = "seq 1 200000; echo THE''END";
    const one = new Shown(
      world.own(new Attached(path, { ...S, cmd: ["sh", "-c", line], tty: { cols: 80, rows: 24 } })),
    );
    await one.attached.start();
    const ended = await until("its end", () => one.ended);
    assert.equal(ended.exit_code, 0);
    assert.match(one.text.slice(-200), /200000\r\nTHEEND\r\n/);
  }),
);

test("what is typed while the daemon is away is sent once it is back, up to a limit", async () => {
  let back = false;
  const typed: string[] = [];
  const fake = await FakeDaemon.raw((socket) => {
    if (typed.length > 0 && !back) return void socket.destroy();
    const at = typed.push("") - 1;
    let text = Buffer.alloc(0);
    let opened = false;
    socket.on("data", (bytes) => {
      text = Buffer.concat([text, bytes]);
      if (!opened) {
        const end = text.indexOf("}\n");
        if (end < 0) return;
        text = text.subarray(end + 2);
        opened = true;
        socket.write('{"exec":"e","durable":true,"version":"0","protocol":1}\n');
      }
      while (text.length >= 5 && text.length >= 5 + text.readUInt32BE(1)) {
        const end = 5 + text.readUInt32BE(1);
        if (text[0] === 1) typed[at] += text.subarray(5, end).toString();
        text = text.subarray(end);
      }
    });
  });
  const shown = new Shown(new Attached(fake.socket, { ...S, tty: { cols: 80, rows: 24 } }));
  try {
    shown.attached.write("early ");
    await shown.attached.start();
    await until("the early keys", () => typed[0] === "early ");
    fake.hangUp();
    await until("the loss to be seen", () => shown.states.at(-1) === "lost");
    shown.attached.write("größe ");
    shown.attached.write("x".repeat(60_000));
    shown.attached.write("y".repeat(6_000));
    shown.attached.write("not with a hole before it");
    back = true;
    await until("it to be back", () => shown.states.at(-1) === "open");
    shown.attached.write(" late");
    const wanted = `größe ${"x".repeat(60_000)} late`;
    await until("the keys", () => typed[1]?.endsWith("late"));
    assert.equal(typed[1], wanted);
  } finally {
    shown.attached.dispose();
    fake.dispose();
  }
});

test("frames in pieces, unknown ones and ones that are too long", async () => {
  const frame = (type: number, payload: Buffer | string) => {
    const bytes = Buffer.from(payload);
    const header = Buffer.alloc(5);
    header.writeUInt8(type, 0);
    header.writeUInt32BE(bytes.length, 1);
    return Buffer.concat([header, bytes]);
  };
  const answer = Buffer.from('{"exec":"e","version":"0","protocol":1,"field_of_tomorrow":[]}\n');
  const smile = Buffer.from("🙂");
  const good = Buffer.concat([
    answer,
    frame(65, smile.subarray(0, 2)),
    frame(200, "what is this"),
    frame(65, smile.subarray(2)),
    frame(67, '{"exit_code":9,"reason":"why"}'),
  ]);
  const scripts: Record<string, (write: (bytes: Buffer) => void, hangUp: () => void) => void> = {
    pieces: (write) => good.forEach((byte) => write(Buffer.of(byte))),
    whole: (write) => write(good),
    long: (write) => write(Buffer.concat([answer, Buffer.of(65, 0xff, 0xff, 0xff, 0xff)])),
    lost: (write, hangUp) => {
      write(answer);
      hangUp();
    },
    nonsense: (write) => write(Buffer.from("HTTP/1.1 400 Bad Request\n")),
  };
  const fake = await FakeDaemon.raw((socket) => {
    socket.once("data", (bytes) => {
      const [preface, opening] = bytes.toString().split("\n");
      assert.equal(preface, "abx-stream/1");
      const { session } = JSON.parse(opening ?? "") as { session: string };
      scripts[session]?.(
        (piece) => socket.write(piece),
        () => socket.end(),
      );
    });
  });
  try {
    for (const name of ["pieces", "whole"]) {
      const shown = new Shown(
        new Attached(fake.socket, { client: NAME, session: name, tty: { cols: 80, rows: 24 } }),
      );
      await shown.attached.start();
      const { exit_code, reason } = await until("its end", () => shown.ended);
      assert.deepEqual([exit_code, reason, shown.text], [9, "why", "🙂"]);
    }
    for (const [name, wanted] of [
      ["long", "protocol_error"],
      ["lost", "daemon_unreachable"],
    ]) {
      const shown = new Shown(
        new Attached(fake.socket, { client: NAME, session: name ?? "", tty: { cols: 80, rows: 24 } }),
      );
      await shown.attached.start();
      assert.equal((await until("its end", () => shown.ended)).error?.kind, wanted);
    }
    await assert.rejects(
      RawStream.open(fake.socket, { client: NAME, session: "nonsense" }),
      (error: AbxError) => error.kind === "protocol_error",
    );
  } finally {
    fake.dispose();
  }
});
