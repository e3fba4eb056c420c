/**
 * A connection to abxd that comes back: after a restart of the daemon it greets again, subscribes from the last event
 * that it saw, and says so. It never starts the daemon unless it is told to.
 */

import type { Socket } from "node:net";
import {
  CancellationToken,
  createMessageConnection,
  Emitter,
  StreamMessageReader,
  StreamMessageWriter,
  type Disposable,
  type Event,
  type Message,
  type MessageConnection,
} from "vscode-jsonrpc/node";
import type { Event as AbxEvent, HelloResult, Methods } from "../protocol";
import { dial } from "./dial";
import { AbxError, asAbxError, lostConnection } from "./errors";
import { startDaemon } from "./launch";
import { socketPath, type Places } from "./paths";
import { PROTOCOL, VERSION } from "./version";

/** First and longest wait between two attempts to connect, in milliseconds. */
const FIRST_RETRY_MS = 100;
const LAST_RETRY_MS = 3_000;

/** Longest wait for the answers that open a connection, in milliseconds: one that hangs must not look alive. */
const ANSWER_LIMIT_MS = 10_000;

export interface ClientOptions extends Places {
  /** The program `abx`: a path, or a name that is searched for. */
  program?: string;
  /** What the daemon's log and `abx history` call this client. */
  name: string;
  env?: NodeJS.ProcessEnv;
  log?: (line: string) => void;
  /** Longest wait for the answers that open a connection, in milliseconds; ten seconds if absent. */
  answerLimitMs?: number;
}

export type State =
  | { kind: "connecting" }
  | { kind: "connected"; hello: HelloResult }
  /** Attempts go on by themselves. */
  | { kind: "offline"; error: AbxError };

/** How far an operation is. */
export interface Progress {
  text: string;
  current_bytes: number | null;
  total_bytes: number | null;
}

export interface CallOptions {
  /** The editor's token; when it fires, the daemon answers at once and what was begun goes on. */
  token?: CancellationToken;
  /** Called with progress, always before the answer. Only for methods that take `op`. */
  onProgress?: (progress: Progress) => void;
}

/** One connection. `gone` rejects when it is. */
interface Link {
  rpc: MessageConnection;
  socket: Socket;
  gone: Promise<never>;
}

type Live = Link & { hello: HelloResult };

export class Client implements Disposable {
  private readonly states = new Emitter<State>();
  private readonly events = new Emitter<AbxEvent>();
  private readonly progress = new Map<string, (progress: Progress) => void>();
  private live: Live | undefined;
  private attempt: Promise<void> | undefined;
  private timer: NodeJS.Timeout | undefined;
  private wait = FIRST_RETRY_MS;
  private kept = false;
  private disposed = false;
  private ops = 0;
  private seq: number | undefined;
  private current: State = { kind: "connecting" };

  /** Fires when the state becomes another. */
  readonly onState: Event<State> = this.states.event;
  /** Fires with each event of the daemon, in order, also those that happened while the connection was away. */
  readonly onEvent: Event<AbxEvent> = this.events.event;

  constructor(private readonly options: ClientOptions) {}

  get state(): State {
    return this.current;
  }

  /** What this client calls itself, for raw streams too. */
  get name(): string {
    return this.options.name;
  }

  /** The socket, for raw streams. */
  get socketPath(): string {
    return socketPath(this.options, this.options.env);
  }

  /** The number of the last event that was seen. */
  get lastSeq(): number | undefined {
    return this.seq;
  }

  /** Connects, and connects again whenever the connection is lost, until {@link dispose}. */
  keep(): void {
    this.kept = true;
    void this.connect().catch(() => undefined);
  }

  /** Resolves once connected. With `launch`, starts the daemon if nobody listens. */
  async ready(options: { launch?: boolean } = {}): Promise<void> {
    try {
      await this.connect();
    } catch (error) {
      const failure = asAbxError(error);
      if (!options.launch || failure.kind !== "daemon_unreachable") throw failure;
      this.log("starting abxd");
      await startDaemon(this.options.program ?? "abx", this.options, this.options.env);
      await this.connect();
    }
  }

  /** Makes a call. Connects first if need be, but starts no daemon. */
  async call<M extends keyof Methods>(
    method: M,
    params: Methods[M]["params"],
    { token = CancellationToken.None, onProgress }: CallOptions = {},
  ): Promise<Methods[M]["result"]> {
    await this.connect();
    if (!this.live) throw lostConnection();
    if (!onProgress) return await request(this.live, method, params, token);
    this.ops += 1;
    const op = `${this.options.name}-${process.pid}-${this.ops}`;
    this.progress.set(op, onProgress);
    try {
      return await request(this.live, method, { ...params, op }, token);
    } finally {
      this.progress.delete(op);
    }
  }

  /** Connects anew, because the places may be others now. Events go on from the present: they are of another table. */
  restart(): void {
    clearTimeout(this.timer);
    this.seq = undefined;
    this.wait = FIRST_RETRY_MS;
    if (this.live) close(this.live);
    else if (this.kept) this.later();
  }

  dispose(): void {
    this.disposed = true;
    this.kept = false;
    clearTimeout(this.timer);
    if (this.live) close(this.live);
    this.states.dispose();
    this.events.dispose();
  }

  private connect(): Promise<void> {
    if (this.disposed) return Promise.reject(lostConnection());
    if (this.live) return Promise.resolve();
    clearTimeout(this.timer);
    this.attempt ??= this.open().finally(() => (this.attempt = undefined));
    return this.attempt;
  }

  private async open(): Promise<void> {
    try {
      await this.greet(await dial(this.socketPath));
      this.wait = FIRST_RETRY_MS;
    } catch (error) {
      const failure = asAbxError(error);
      this.become({ kind: "offline", error: failure });
      this.later();
      throw failure;
    }
  }

  private async greet(socket: Socket): Promise<void> {
    const link = linked(socket);
    const { rpc } = link;
    let live: Live | undefined;
    const lost = () => {
      close(link);
      if (live !== undefined && live === this.live) this.lost();
    };
    link.gone.catch(lost);
    rpc.onError(([error]) => this.log(`connection: ${error.message}`));
    rpc.onNotification("event", (params: unknown) => this.heard(params, link));
    rpc.listen();
    try {
      const hello = await this.answered(link, async () => {
        const greeting = { client: this.options.name, version: VERSION, protocol: PROTOCOL };
        const hello = await request(link, "daemon.hello", greeting, CancellationToken.None);
        if (hello.protocol !== PROTOCOL) throw mismatch(hello);
        await this.subscribe(link);
        return hello;
      });
      if (this.disposed) throw lostConnection();
      live = { ...link, hello };
      this.live = live;
      this.log(`connected to abxd ${hello.version}, process ${hello.pid}`);
      this.become({ kind: "connected", hello });
    } catch (error) {
      close(link);
      throw error;
    }
  }

  /** Does what a daemon answers at once, and ends the connection to one that does not. */
  private async answered<T>(link: Link, work: () => Promise<T>): Promise<T> {
    let hangs = false;
    const limit = setTimeout(() => {
      hangs = true;
      close(link);
    }, this.options.answerLimitMs ?? ANSWER_LIMIT_MS);
    try {
      return await work();
    } catch (error) {
      if (hangs) throw new AbxError("daemon_hangs", "abxd does not answer", "abx daemon restart");
      throw error;
    } finally {
      clearTimeout(limit);
    }
  }

  /** From the last event that was seen, so that nothing is missing between two connections. */
  private async subscribe(link: Link): Promise<void> {
    try {
      const since = this.seq;
      await request(link, "event.subscribe", since === undefined ? {} : { since }, CancellationToken.None);
    } catch (error) {
      const failure = asAbxError(error);
      if (failure.kind !== "method_not_found") throw failure;
      this.log("this abxd has no events: bring it up to date to see changes as they happen");
    }
  }

  private heard(params: unknown, link: Link): void {
    const event = params as AbxEvent;
    switch (event.kind) {
      case "progress":
        return this.advanced(event);
      case "lagged":
        // Without events the connection would look alive and miss all that happens.
        this.answered(link, () => this.subscribe(link)).catch((error) => {
          this.log(`the events could not be followed again: ${asAbxError(error).text}`);
          close(link);
        });
        break;
      default:
        // Also that of `subscribed`: it tells where this daemon's numbers stand, which may be another table's.
        if (typeof event.seq === "number") this.seq = event.seq;
    }
    this.events.fire(event);
  }

  private advanced({ data }: AbxEvent): void {
    const {
      op,
      text,
      current_bytes = null,
      total_bytes = null,
    } = data as Partial<Progress> & { op?: string };
    this.progress.get(op ?? "")?.({ text: text ?? "", current_bytes, total_bytes });
  }

  private lost(): void {
    this.live = undefined;
    this.log("the connection to abxd was lost");
    this.become({ kind: "offline", error: lostConnection() });
    this.later();
  }

  private later(): void {
    if (!this.kept) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.connect().catch(() => undefined), this.wait);
    this.wait = Math.min(this.wait * 2, LAST_RETRY_MS);
  }

  private become(state: State): void {
    if (this.disposed) return;
    this.current = state;
    this.states.fire(state);
  }

  private log(line: string): void {
    this.options.log?.(line);
  }
}

/** Ends the connection when a message cannot be sent: whoever waits for its answer learns it from that. */
class Writer extends StreamMessageWriter {
  constructor(private readonly socket: Socket) {
    super(socket);
  }

  override async write(message: Message): Promise<void> {
    await super.write(message).catch(() => this.socket.destroy());
  }
}

function linked(socket: Socket): Link {
  const rpc = createMessageConnection(new StreamMessageReader(socket), new Writer(socket));
  const gone = new Promise<never>((_, fail) => socket.once("close", () => fail(lostConnection())));
  // Often nobody waits for an answer then.
  gone.catch(() => undefined);
  return { rpc, socket, gone };
}

function close({ rpc, socket }: Link): void {
  if (!socket.destroyed) rpc.dispose();
  socket.destroy();
}

async function request<M extends keyof Methods>(
  { rpc, gone }: Link,
  method: M,
  params: Methods[M]["params"],
  token: CancellationToken,
): Promise<Methods[M]["result"]> {
  try {
    const answer = rpc.sendRequest<Methods[M]["result"]>(method, params, token);
    // A request that is under way when its connection ends may be forgotten rather than rejected.
    return await Promise.race([answer, gone]);
  } catch (error) {
    throw asAbxError(error);
  }
}

function mismatch(hello: HelloResult): AbxError {
  const [older, hint] =
    hello.protocol < PROTOCOL
      ? ["abxd", "bring abx up to date, then: abx daemon restart"]
      : ["this client", "bring this client up to date"];
  const theirs = `abxd ${hello.version} speaks protocol ${hello.protocol}`;
  const text = `${theirs}, and this client ${PROTOCOL}: ${older} is older`;
  return new AbxError("protocol_mismatch", text, hint);
}
