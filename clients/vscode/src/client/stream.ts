/** The raw stream: the bytes of one command or terminal on a connection of their own. */

import type { Socket } from "node:net";
import { Emitter, type Disposable, type Event } from "vscode-jsonrpc/node";
import type { ErrorData, Size } from "../protocol";
import { dial } from "./dial";
import { AbxError, fromWire, lostConnection } from "./errors";
import { PROTOCOL, VERSION } from "./version";

const PREFACE = "abx-stream/1\n";

/** Longest payload of a frame, in bytes; a longer one is a protocol error. */
const MAX_FRAME_BYTES = 256 * 1024;

/** Longest answer to the opening, in bytes. */
const MAX_ANSWER_BYTES = 1024 * 1024;

const HEADER_BYTES = 5;

const Kind = { input: 1, resize: 2, signal: 3, stdout: 65, stderr: 66, exit: 67, error: 68 } as const;

/** What to run, or to follow. */
export interface Open {
  /** What `abx history` calls this client: the name of its greeting. */
  client: string;
  session: string;
  /** Empty for the session's shell. */
  cmd?: string[];
  env?: Record<string, string>;
  cwd?: string | null;
  user?: string | null;
  tty?: Size | null;
  stdin?: boolean;
  attach?: boolean;
  terminal?: string | null;
  read_only?: boolean;
  scrollback?: number;
  agent?: "usual" | "resume" | "fresh";
  follow?: string | null;
  stdout_from?: number;
  stderr_from?: number;
}

/** The daemon's answer. */
export interface Opened {
  exec: string;
  followed: boolean;
  /** It goes on when this client is gone, and can be followed again. */
  durable: boolean;
  stdout_from: number;
  stderr_from: number;
  /** One line for the user on how it was started. */
  note?: string;
}

/** How a stream ended: with the command, with an error, or because the connection was lost. */
export type End =
  | { kind: "exit"; exit_code: number; reason: string | null }
  | { kind: "error"; error: AbxError }
  | { kind: "lost"; error: AbxError };

export class RawStream implements Disposable {
  private readonly output = new Emitter<Buffer>();
  private readonly errors = new Emitter<Buffer>();
  private readonly ended = new Emitter<End>();
  private rest = Buffer.alloc(0);
  private over = false;

  /** Standard output; everything, on a terminal. */
  readonly onStdout: Event<Buffer> = this.output.event;
  readonly onStderr: Event<Buffer> = this.errors.event;
  /** Fires once, and nothing after it; never after {@link dispose}. */
  readonly onEnd: Event<End> = this.ended.event;

  private constructor(
    private readonly socket: Socket,
    readonly opened: Opened,
    first: Buffer,
  ) {
    socket.on("data", (bytes) => this.take(bytes));
    socket.on("close", () => this.end({ kind: "lost", error: lostConnection() }));
    // Listeners are added after this; what came with the answer must wait for them.
    socket.pause();
    if (first.length > 0) socket.unshift(first);
    setImmediate(() => this.over || socket.resume());
  }

  /** Connects and opens. Throws what the daemon answered when it refuses. */
  static async open(path: string, open: Open): Promise<RawStream> {
    const socket = await dial(path);
    try {
      const line = { version: VERSION, protocol: PROTOCOL, ...open };
      socket.write(PREFACE + JSON.stringify(line) + "\n");
      const [answer, rest] = await firstLine(socket);
      return new RawStream(socket, answer, rest);
    } catch (error) {
      socket.destroy();
      throw error;
    }
  }

  /** Sends input. */
  write(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length; at += MAX_FRAME_BYTES) {
      this.send(Kind.input, bytes.subarray(at, at + MAX_FRAME_BYTES));
    }
  }

  endInput(): void {
    this.send(Kind.input, new Uint8Array());
  }

  resize(size: Size): void {
    this.send(Kind.resize, Buffer.from(JSON.stringify({ cols: size.cols, rows: size.rows })));
  }

  /** Sends a signal, by number, to the command. */
  signal(number: number): void {
    this.send(Kind.signal, Uint8Array.of(number));
  }

  /** Stops reading; the daemon then holds the command back, or paints its screen anew later. */
  pause(): void {
    this.socket.pause();
  }

  resume(): void {
    if (!this.over) this.socket.resume();
  }

  /** Closes the connection: detaches from a terminal, ends a command. */
  dispose(): void {
    this.over = true;
    this.socket.destroy();
  }

  private send(kind: number, payload: Uint8Array): void {
    if (this.over || this.socket.destroyed) return;
    const header = Buffer.alloc(HEADER_BYTES);
    header.writeUInt8(kind, 0);
    header.writeUInt32BE(payload.length, 1);
    this.socket.write(Buffer.concat([header, payload]));
  }

  private take(bytes: Buffer): void {
    let rest = this.rest.length > 0 ? Buffer.concat([this.rest, bytes]) : bytes;
    while (!this.over && rest.length >= HEADER_BYTES) {
      const length = rest.readUInt32BE(1);
      if (length > MAX_FRAME_BYTES) {
        const error = new AbxError(
          "protocol_error",
          `a frame of ${length} bytes is over the limit of ${MAX_FRAME_BYTES}`,
        );
        this.end({ kind: "error", error });
        return;
      }
      if (rest.length < HEADER_BYTES + length) break;
      this.frame(rest.readUInt8(0), rest.subarray(HEADER_BYTES, HEADER_BYTES + length));
      rest = rest.subarray(HEADER_BYTES + length);
    }
    this.rest = Buffer.from(rest);
  }

  private frame(kind: number, payload: Buffer): void {
    switch (kind) {
      case Kind.stdout:
        return this.output.fire(payload);
      case Kind.stderr:
        return this.errors.fire(payload);
      case Kind.exit: {
        const exit = parsed(payload) as { exit_code?: number; reason?: string | null } | undefined;
        return this.end({ kind: "exit", exit_code: exit?.exit_code ?? 125, reason: exit?.reason ?? null });
      }
      case Kind.error:
        return this.end({ kind: "error", error: refusal(parsed(payload)) });
      default:
        // A frame of a newer daemon.
        return;
    }
  }

  private end(end: End): void {
    if (this.over) return;
    this.dispose();
    this.ended.fire(end);
  }
}

/** The daemon's one line of JSON, and what came behind it. */
function firstLine(socket: Socket): Promise<[Opened, Buffer]> {
  return new Promise((done, fail) => {
    let bytes = Buffer.alloc(0);
    const settle = (act: () => void) => {
      socket.off("data", data).off("close", close);
      act();
    };
    const close = () => settle(() => fail(lostConnection()));
    const data = (chunk: Buffer) => {
      bytes = Buffer.concat([bytes, chunk]);
      const end = bytes.indexOf(0x0a);
      if (end < 0) {
        if (bytes.length > MAX_ANSWER_BYTES)
          settle(() => fail(new AbxError("protocol_error", "an answer without an end")));
        return;
      }
      const answer = parsed(bytes.subarray(0, end)) as (Partial<Opened> & { error?: unknown }) | undefined;
      settle(() => {
        if (typeof answer?.exec !== "string") return fail(refusal(answer?.error));
        const { exec, followed = false, durable = false, stdout_from = 0, stderr_from = 0, note } = answer;
        done([{ exec, followed, durable, stdout_from, stderr_from, note }, bytes.subarray(end + 1)]);
      });
    };
    socket.on("data", data).on("close", close);
  });
}

function parsed(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString("utf8"));
  } catch {
    return undefined;
  }
}

function refusal(error: unknown): AbxError {
  const { code, message, data } = (error ?? {}) as { code?: number; message?: string; data?: ErrorData };
  if (message === undefined)
    return new AbxError("protocol_error", "abxd sent an answer that cannot be understood");
  return fromWire(code ?? 22, message, data);
}
