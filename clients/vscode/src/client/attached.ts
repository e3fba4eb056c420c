/** A command or terminal that is followed through restarts of the daemon, as text. */

import { Emitter, type Disposable, type Event } from "vscode-jsonrpc/node";
import type { Size } from "../protocol";
import { asAbxError, type AbxError } from "./errors";
import { RawStream, type End, type Open } from "./stream";

/** First and longest wait between two attempts to follow again, in milliseconds. */
const FIRST_RETRY_MS = 100;
const LAST_RETRY_MS = 2_000;

/** Text that is given at once, and how often, so that a flood does not choke the editor. */
const PIECE_CHARACTERS = 128 * 1024;
const PIECE_MS = 8;

/** Text that waits to be given, past which the stream is not read. */
const MOST_WAITING_CHARACTERS = 512 * 1024;

/** Keys that may wait for the terminal to be open, or to be back, in bytes. */
const MOST_WAITING_BYTES = 64 * 1024;

export type AttachedState = "opening" | "open" | "lost" | "ended";

export class Attached implements Disposable {
  private readonly texts = new Emitter<string>();
  private readonly states = new Emitter<AttachedState>();
  private readonly ends = new Emitter<Ended>();
  private stream: RawStream | undefined;
  private size: Size;
  private queue = "";
  private flushing: NodeJS.Timeout | undefined;
  private retry: NodeJS.Timeout | undefined;
  private over = false;
  private waiting: Keys | undefined = new Keys();
  private ending: Ended | undefined;

  /** What the terminal shows next. */
  readonly onText: Event<string> = this.texts.event;
  readonly onState: Event<AttachedState> = this.states.event;
  /** Fires once, after all text; never after {@link dispose}. */
  readonly onEnd: Event<Ended> = this.ends.event;

  /** Opens nothing yet: see {@link start}. `open.tty` is the size to begin with. */
  constructor(
    private readonly path: string,
    private readonly open: Open & { tty: Size },
  ) {
    this.size = open.tty;
  }

  /** Opens it. Throws what the daemon says when it refuses. */
  async start(): Promise<{ note?: string; followed: boolean }> {
    this.states.fire("opening");
    const size = this.size;
    const stream = await RawStream.open(this.path, { ...this.open, tty: size });
    this.follow(stream, size);
    return stream.opened;
  }

  /** The session has another name now; it is followed by that one. */
  rename(session: string): void {
    this.open.session = session;
  }

  /**
   * Sends keys. Those typed before it is open wait for it, and so do those typed while the connection is away, as those of
   * `abx attach` do: what they are typed for has not noticed anything.
   */
  write(text: string): void {
    const bytes = Buffer.from(text, "utf8");
    if (this.waiting) this.waiting.add(bytes);
    else this.stream?.write(bytes);
  }

  resize(size: Size): void {
    this.size = size;
    this.stream?.resize(size);
  }

  /** Leaves: a terminal goes on without this client, a command ends. */
  dispose(): void {
    this.over = true;
    clearTimeout(this.flushing);
    clearTimeout(this.retry);
    this.stream?.dispose();
  }

  private follow(stream: RawStream, size: Size): void {
    if (this.over) return stream.dispose();
    // A character may be cut anywhere between two frames.
    const decoder = new TextDecoder("utf-8");
    this.stream = stream;
    this.states.fire("open");
    stream.onStdout((bytes) => this.give(decoder.decode(bytes, { stream: true })));
    stream.onStderr((bytes) => this.give(bytes.toString("utf8")));
    stream.onEnd((end) => this.ended(stream, end));
    for (const bytes of this.waiting?.all ?? []) stream.write(bytes);
    this.waiting = undefined;
    // It may have changed while the stream was opened.
    if (size !== this.size) stream.resize(this.size);
  }

  private ended(stream: RawStream, end: End): void {
    this.stream = undefined;
    if (this.over) return;
    if (end.kind === "exit") return this.finish({ exit_code: end.exit_code, reason: end.reason });
    const away = end.kind === "lost" || end.error.kind === "shutting_down";
    if (!away || !stream.opened.durable)
      return this.finish({ exit_code: undefined, reason: end.error.message, error: end.error });
    this.waiting = new Keys();
    this.states.fire("lost");
    this.again(stream, FIRST_RETRY_MS);
  }

  /** Tries to follow the same command until it answers, or the daemon says that it is gone. */
  private again(before: RawStream, wait: number): void {
    this.retry = setTimeout(async () => {
      const size = this.size;
      const follow = {
        ...this.open,
        terminal: null,
        agent: undefined,
        follow: before.opened.exec,
        tty: size,
      };
      try {
        this.follow(await RawStream.open(this.path, follow), size);
      } catch (error) {
        if (this.over) return;
        const failure = asAbxError(error);
        const away = ["daemon_unreachable", "shutting_down", "engine_unavailable", "engine_timeout", "busy"];
        if (away.includes(failure.kind)) return this.again(before, Math.min(wait * 2, LAST_RETRY_MS));
        this.finish({ exit_code: undefined, reason: failure.message, error: failure });
      }
    }, wait);
  }

  private finish(ended: Ended): void {
    this.ending = ended;
    this.flush();
  }

  private give(text: string): void {
    if (this.over || text === "") return;
    this.queue += text;
    if (this.queue.length > MOST_WAITING_CHARACTERS) this.stream?.pause();
    if (this.flushing === undefined) this.flush();
  }

  /** Gives a piece, and the rest a moment later. The first goes at once: a key's echo never waits. */
  private flush(): void {
    if (this.over) return;
    let cut = Math.min(this.queue.length, PIECE_CHARACTERS);
    const last = this.queue.charCodeAt(cut - 1);
    // Not between the halves of a pair.
    if (cut < this.queue.length && last >= 0xd800 && last <= 0xdbff) cut -= 1;
    const piece = this.queue.slice(0, cut);
    this.queue = this.queue.slice(cut);
    if (piece !== "") this.texts.fire(piece);
    if (this.queue.length <= MOST_WAITING_CHARACTERS) this.stream?.resume();
    clearTimeout(this.flushing);
    this.flushing = piece === "" ? undefined : setTimeout(() => this.flush(), PIECE_MS);
    if (this.queue === "" && this.ending) {
      const ended = this.ending;
      this.states.fire("ended");
      this.dispose();
      this.ends.fire(ended);
    }
  }
}

/** Keys that wait. */
class Keys {
  readonly all: Buffer[] = [];
  private left = MOST_WAITING_BYTES;

  /** Past what does not fit nothing more is kept: it would be typed with a hole before it. */
  add(bytes: Buffer): void {
    this.left = bytes.length <= this.left ? this.left - bytes.length : -1;
    if (this.left >= 0) this.all.push(bytes);
  }
}

/** How it ended; without a code when that is not known. */
export interface Ended {
  exit_code: number | undefined;
  /** One line, when it did not end by itself. */
  reason: string | null;
  error?: AbxError;
}
