/** The sessions, as the daemon last told: listed again whenever an event says that something changed. */

import { Emitter, type Disposable, type Event } from "vscode-jsonrpc/node";
import type { Event as AbxEvent, Session } from "../protocol";
import type { Client } from "./connection";
import { asAbxError } from "./errors";

/** Least time between two lists, in milliseconds: an agent may run many commands a second. */
const LEAST_MS = 100;

export class SessionTable implements Disposable {
  private readonly changes = new Emitter<void>();
  private readonly waits = new Emitter<Session>();
  private readonly mine: Disposable[];
  private listed: Session[] | undefined;
  private running: Promise<void> | undefined;
  private again = false;
  private disposed = false;

  /** Fires when the sessions, or what is known of them, may have changed. */
  readonly onChange: Event<void> = this.changes.event;
  /** Fires when a session's agent begins to wait for its user. */
  readonly onWaiting: Event<Session> = this.waits.event;

  constructor(
    private readonly client: Client,
    private readonly log: (line: string) => void = () => undefined,
  ) {
    this.mine = [
      client.onEvent((event) => this.happened(event)),
      client.onState((state) => {
        if (state.kind === "connected") void this.refresh();
        else this.forget();
      }),
    ];
    if (client.state.kind === "connected") void this.refresh();
  }

  /** Newest first; undefined while nothing is known. */
  get all(): readonly Session[] | undefined {
    return this.listed;
  }

  get(name: string): Session | undefined {
    return this.listed?.find((session) => session.name === name);
  }

  /** Those whose agent waits for its user. */
  get waiting(): Session[] {
    return (this.listed ?? []).filter((session) => session.attention === "waiting");
  }

  /** Lists; what happens meanwhile is listed once more. Never fails: the state of the client tells why nothing came. */
  refresh(): Promise<void> {
    if (this.running) this.again = true;
    this.running ??= this.list().finally(() => (this.running = undefined));
    return this.running;
  }

  dispose(): void {
    this.disposed = true;
    for (const one of this.mine) one.dispose();
    this.changes.dispose();
    this.waits.dispose();
  }

  private async list(): Promise<void> {
    do {
      this.again = false;
      try {
        this.take(await this.client.call("session.list", {}));
      } catch (error) {
        const { kind, text } = asAbxError(error);
        if (kind !== "daemon_unreachable") this.log(`the sessions could not be listed: ${text}`);
      }
      if (this.again) await new Promise((done) => setTimeout(done, LEAST_MS));
    } while (this.again && !this.disposed);
  }

  private take(sessions: Session[]): void {
    if (this.disposed) return;
    const before = new Map((this.listed ?? []).map((session) => [session.id, session.attention]));
    const first = this.listed === undefined;
    this.listed = sessions;
    this.changes.fire();
    if (first) return;
    for (const session of this.waiting) {
      if (before.get(session.id) !== "waiting") this.waits.fire(session);
    }
  }

  private happened(event: AbxEvent): void {
    // Events are hints and the table is the truth: which kind it is does not matter.
    if (event.kind !== "progress") void this.refresh();
  }

  private forget(): void {
    if (this.listed === undefined) return;
    this.listed = undefined;
    this.changes.fire();
  }
}
