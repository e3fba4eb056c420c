/** What tests share: a home and a daemon of their own on the real programs, fakes, and waiting without luck. */

import { execFile, execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { delimiter, dirname, join } from "node:path";
import {
  createMessageConnection,
  StreamMessageReader,
  StreamMessageWriter,
  type MessageConnection,
} from "vscode-jsonrpc/node";
import { Client, type ClientOptions } from "../src/client/connection";
import { findProgram } from "../src/client/launch";
import { SessionTable } from "../src/client/sessions";

/** Longest wait for a condition, in milliseconds: for a test that hangs, not for one that is slow. */
const LIMIT_MS = Number(process.env["ABX_TEST_LIMIT_MS"] || 60_000);

/** The program `abx`, with `abxd` beside it: `ABX_TEST_PROGRAM`, else the one of the search path. */
export const PROGRAM = findProgram(process.env["ABX_TEST_PROGRAM"] || "abx");

/** A small image that the engine has, with a shell. */
export const IMAGE = process.env["ABX_TEST_IMAGE"] || "debian:stable-slim";

/** Why tests that need an engine do not run; undefined where there is one. */
export const NO_ENGINE = process.env["ABX_TEST_ENGINE"] === "0" ? "no engine" : undefined;

/** A home with a daemon on it. Disposing it removes its sessions and ends the daemon. */
export class World {
  readonly dir = mkdtempSync("/tmp/abx-vs-");
  readonly home = join(this.dir, "abx");
  readonly env: NodeJS.ProcessEnv = {
    PATH: process.env["PATH"],
    HOME: this.dir,
    ABX_HOME: this.home,
    LANG: "C.UTF-8",
  };
  private readonly closing: { dispose(): void }[] = [];

  constructor() {
    if (process.env["DOCKER_HOST"]) this.env["DOCKER_HOST"] = process.env["DOCKER_HOST"];
  }

  /** Runs `abx` to its end and gives its standard output. */
  async abx(...args: string[]): Promise<string> {
    return await new Promise((done, fail) => {
      execFile(
        PROGRAM,
        args,
        { env: this.env, encoding: "utf8", timeout: LIMIT_MS },
        (error, stdout, stderr) =>
          error ? fail(new Error(`abx ${args.join(" ")}: ${stderr || error.message}`)) : done(stdout),
      );
    });
  }

  async startDaemon(): Promise<void> {
    await this.abx("daemon", "start");
  }

  async stopDaemon(): Promise<void> {
    await this.abx("daemon", "stop");
  }

  client(options: Partial<ClientOptions> = {}): Client {
    return this.own(
      new Client({ name: "a test", program: PROGRAM, home: this.home, env: this.env, ...options }),
    );
  }

  table(client: Client): SessionTable {
    return this.own(new SessionTable(client));
  }

  /** Disposes it with this world. */
  own<T extends { dispose(): void }>(thing: T): T {
    this.closing.push(thing);
    return thing;
  }

  async dispose(): Promise<void> {
    for (const one of this.closing.reverse()) one.dispose();
    // No daemon was started where a test is about that.
    const names = await this.abx("ls", "-q", "--no-autostart").catch(() => "");
    for (const name of names.split("\n").filter(Boolean)) await this.abx("delete", "-y", name);
    const kept = await this.abx("snapshot", "list", "-q", "--no-autostart").catch(() => "");
    for (const name of kept.split("\n").filter(Boolean)) await this.abx("snapshot", "delete", name);
    await this.abx("daemon", "stop").catch(() => undefined);
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** Runs a test in a world of its own that has a daemon. */
export function inWorld(work: (world: World) => Promise<void>): () => Promise<void> {
  return async () => {
    const world = new World();
    try {
      await world.startDaemon();
      await work(world);
    } finally {
      await world.dispose();
    }
  };
}

/** Waits until `look` gives something, and gives that. */
export async function until<T>(
  what: string,
  look: () => T | undefined | false | null | Promise<T | undefined | false | null>,
): Promise<T> {
  const end = Date.now() + LIMIT_MS;
  for (;;) {
    const found = await look();
    if (found !== undefined && found !== false && found !== null) return found;
    if (Date.now() > end) throw new Error(`waited too long for ${what}`);
    await new Promise((done) => setTimeout(done, 10));
  }
}

/** Waits for a promise, within the limit. */
export async function within<T>(what: string, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<never>((_, fail) => {
    timer = setTimeout(() => fail(new Error(`waited too long for ${what}`)), LIMIT_MS);
  });
  try {
    return await Promise.race([promise, limit]);
  } finally {
    clearTimeout(timer);
  }
}

/** A server on a socket of its own, for what a real daemon does not do when asked. */
export class FakeDaemon {
  readonly dir = mkdtempSync("/tmp/abx-vs-");
  readonly socket = join(this.dir, "s");
  private readonly server: Server;
  private readonly open = new Set<Socket>();

  private constructor(serve: (socket: Socket) => void) {
    this.server = createServer((socket) => {
      this.open.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => this.open.delete(socket));
      serve(socket);
    });
  }

  /** Gives each connection to `serve`. */
  static async raw(serve: (socket: Socket) => void): Promise<FakeDaemon> {
    const fake = new FakeDaemon(serve);
    await new Promise<void>((done) => fake.server.listen(fake.socket, done));
    return fake;
  }

  /** Answers greetings and subscriptions; the rest is `serve`'s. */
  static async rpc(serve: (rpc: MessageConnection) => void, hello: object = {}): Promise<FakeDaemon> {
    return await FakeDaemon.raw((socket) => {
      const rpc = createMessageConnection(new StreamMessageReader(socket), new StreamMessageWriter(socket));
      const greeting = {
        server: "abxd",
        version: "0.0.0",
        protocol: 1,
        pid: 1,
        home: "/",
        notice: null,
        ...hello,
      };
      rpc.onRequest("daemon.hello", () => greeting);
      rpc.onRequest("event.subscribe", () => 1);
      serve(rpc);
      rpc.listen();
    });
  }

  /** Ends all connections, as a daemon that is killed does. */
  hangUp(): void {
    for (const socket of this.open) socket.destroy();
  }

  dispose(): void {
    this.hangUp();
    this.server.close();
    rmSync(this.dir, { recursive: true, force: true });
  }
}

/** Whether `abx` is a program that runs here at all: a plain word before many failures. */
execFileSync(PROGRAM, ["--version"], { env: { PATH: `${dirname(PROGRAM)}${delimiter}/usr/bin:/bin` } });
