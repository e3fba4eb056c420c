/** A terminal of a session, or one command, as a terminal of the editor. */

import {
  EventEmitter,
  ThemeIcon,
  window,
  type Disposable,
  type Pseudoterminal,
  type Terminal,
  type TerminalDimensions,
} from "vscode";
import { Attached, type Ended } from "../client/attached";
import type { Client } from "../client/connection";
import { asAbxError } from "../client/errors";
import type { Open } from "../client/stream";
import type { SessionTable } from "../client/sessions";
import { plain } from "./words";

/** The size until the editor tells one. */
const FIRST_SIZE = { cols: 80, rows: 24 };

/** What the terminal is told when a program ended that had no time to tidy up: colours, mouse, paste and cursor. */
const TIDY = "\x1b[0m\x1b[?1000;1002;1003;1006;2004l\x1b[?1l\x1b>\x1b[?25h";

/** What a command in a terminal of the editor may count on. */
const TERMINAL_ENV = { TERM: "xterm-256color", COLORTERM: "truecolor" };

export interface What {
  /** The session's id: its name may change while it is shown. */
  id: string;
  title: string;
  open: Omit<Open, "client" | "tty">;
  /** Whether it is closed at once when it ended well, as a shell is; else a key closes it. */
  closes: boolean;
}

export class SessionTerminal implements Pseudoterminal {
  private readonly writes = new EventEmitter<string>();
  private readonly closes = new EventEmitter<number | void>();
  private readonly names = new EventEmitter<string>();
  private attached: Attached | undefined;
  private size = FIRST_SIZE;
  private listening: Disposable | undefined;
  private alternate = new AlternateScreen();
  private ended: Ended | undefined;

  readonly onDidWrite = this.writes.event;
  readonly onDidClose = this.closes.event;
  readonly onDidChangeName = this.names.event;

  constructor(
    private readonly client: Pick<Client, "name" | "socketPath">,
    private readonly table: SessionTable,
    private readonly what: What,
  ) {}

  open(dimensions: TerminalDimensions | undefined): void {
    this.setDimensions(dimensions);
    const env = { ...TERMINAL_ENV, ...this.what.open.env };
    const open: Open = { stdin: true, ...this.what.open, client: this.client.name, env };
    const attached = new Attached(this.client.socketPath, { ...open, tty: this.size });
    this.attached = attached;
    attached.onText((text) => {
      this.alternate.watch(text);
      this.writes.fire(text);
    });
    attached.onState((state) => {
      if (state === "open") this.names.fire(this.what.title);
      if (state === "lost") this.names.fire(`${this.what.title} (reconnecting)`);
    });
    attached.onEnd((ended) => this.end(ended));
    this.listening = this.table.onChange(() => {
      const session = this.table.all?.find(({ id }) => id === this.what.id);
      if (session) attached.rename(session.name);
    }) as Disposable;
    attached.start().then(
      ({ note }) => note && this.say(note),
      (error) => this.end({ exit_code: undefined, reason: null, error: asAbxError(error) }),
    );
  }

  /** Whether there is nothing more to show. */
  get isOver(): boolean {
    return this.ended !== undefined;
  }

  /** The user closed it: what runs on a terminal of the session goes on, a command ends. */
  close(): void {
    this.listening?.dispose();
    this.attached?.dispose();
  }

  handleInput(keys: string): void {
    if (this.ended) this.closes.fire(this.ended.exit_code ?? 1);
    else this.attached?.write(keys);
  }

  setDimensions(dimensions: TerminalDimensions | undefined): void {
    if (!dimensions || dimensions.columns < 1 || dimensions.rows < 1) return;
    this.size = { cols: dimensions.columns, rows: dimensions.rows };
    this.attached?.resize(this.size);
  }

  private end(ended: Ended): void {
    this.close();
    if (this.ended) return;
    this.ended = ended;
    const { exit_code, reason, error } = ended;
    if (this.what.closes && exit_code === 0 && !reason) return this.closes.fire(0);
    const code = exit_code === undefined ? undefined : `ended with code ${exit_code}`;
    this.writes.fire(this.alternate.leave() + TIDY);
    this.say([code, error ? error.text : reason].filter(Boolean).join(": "));
    this.say("press any key to close");
  }

  private say(line: string): void {
    this.writes.fire(`\r\n\x1b[2m[abx] ${plain(line)}\x1b[0m\r\n`);
  }
}

/** Knows whether a program has the alternate screen. Leaving one that is not there would move the cursor. */
class AlternateScreen {
  private on = false;
  private tail = "";

  watch(text: string): void {
    const all = this.tail + text;
    for (const [, mode] of all.matchAll(/\x1b\[\?(?:47|1047|1049)([hl])/g)) this.on = mode === "h";
    // As much as a sequence that is cut between two texts.
    this.tail = all.slice(-8);
  }

  leave(): string {
    return this.on ? "\x1b[?1049l" : "";
  }
}

/** How a terminal of a session is opened. */
export type AttachOptions = Pick<Open, "terminal" | "read_only" | "agent" | "scrollback" | "env">;

/** The terminals of the editor that show sessions; one that is asked for again is brought forward. */
export class Terminals implements Disposable {
  private readonly shown = new Map<string, { terminal: Terminal; pty: SessionTerminal }>();
  private readonly listening: Disposable;

  constructor(
    private readonly client: Pick<Client, "name" | "socketPath">,
    private readonly table: SessionTable,
  ) {
    this.listening = window.onDidCloseTerminal((closed) => {
      for (const [key, { terminal }] of this.shown) if (terminal === closed) this.shown.delete(key);
    });
  }

  /** Shows a terminal of a session. */
  attach(id: string, session: string, options: AttachOptions = {}): Terminal {
    const name = options.terminal ?? "main";
    const mode = options.read_only ? "watch" : "type";
    const key = `${id}/${name}/${mode}`;
    const there = this.shown.get(key);
    if (there && !there.pty.isOver && [undefined, "usual"].includes(options.agent)) {
      there.terminal.show();
      return there.terminal;
    }
    const made = this.options(id, session, { ...options, terminal: name });
    const terminal = window.createTerminal({ ...made, isTransient: true });
    this.shown.set(key, { terminal, pty: made.pty });
    terminal.show();
    return terminal;
  }

  /** What the editor needs to make a terminal of a session by itself. */
  options(id: string, session: string, options: AttachOptions) {
    const name = options.terminal ?? "main";
    const title = `${session}${name === "main" ? "" : `: ${name}`}${options.read_only ? " (read-only)" : ""}`;
    const open = { ...options, session, cmd: [], attach: true, terminal: name };
    const pty = new SessionTerminal(this.client, this.table, { id, title, open, closes: true });
    return { name: title, pty, iconPath: new ThemeIcon(options.read_only ? "eye" : "vm-connect") };
  }

  /** Runs one command line in the session's shell and shows what it prints. Closing the terminal ends it. */
  exec(id: string, session: string, line: string): Terminal {
    const title = `${session}: ${plain(line)}`;
    // The line is the sandbox's business: it is one argument to the shell in there, and no shell out here sees it.
    const open = { session, cmd: ["sh", "-c", line] };
    const pty = new SessionTerminal(this.client, this.table, { id, title, open, closes: false });
    const terminal = window.createTerminal({
      name: title,
      pty,
      iconPath: new ThemeIcon("run"),
      isTransient: true,
    });
    terminal.show();
    return terminal;
  }

  dispose(): void {
    this.listening.dispose();
  }
}
