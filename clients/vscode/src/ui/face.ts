/** What the view says beside its sessions: that the daemon, the program or an engine is missing, and who waits. */

import { commands, window, type Disposable, type Memento, type TreeView } from "vscode";
import type { Client } from "../client/connection";
import { asAbxError, type AbxError } from "../client/errors";
import type { SessionTable } from "../client/sessions";
import { settings } from "./settings";
import type { Node } from "./tree";
import { plain } from "./words";

/** Under which name it is kept which notice of the daemon was shown. */
const NOTICE = "abx.notice";

export class Face implements Disposable {
  private readonly listening: { dispose(): void }[];
  private problem: AbxError | undefined;
  private engines: string | undefined;

  constructor(
    private readonly client: Client,
    private readonly table: SessionTable,
    private readonly view: TreeView<Node>,
    private readonly memory: Memento,
  ) {
    this.listening = [
      client.onState(() => this.changed()),
      client.onEvent(({ kind }) => kind.startsWith("engine.") && void this.look()),
      table.onChange(() => this.show()),
    ];
    this.show();
  }

  /** Starts the daemon for who looks at the view, as `abx` does for who types a command. The view tells what failed. */
  launch(): void {
    if (!settings.autostart()) return;
    this.client.ready({ launch: true }).catch((error: unknown) => {
      this.problem = asAbxError(error);
      this.show();
    });
  }

  dispose(): void {
    for (const one of this.listening) one.dispose();
  }

  private changed(): void {
    const { state } = this.client;
    if (state.kind === "connected") {
      this.problem = undefined;
      void this.look();
      void this.notice(state.hello.notice);
    } else {
      this.engines = undefined;
    }
    this.show();
  }

  private show(): void {
    const { state } = this.client;
    const failure = this.problem ?? (state.kind === "offline" ? state.error : undefined);
    // These two have a page of their own in the view.
    const usual =
      failure?.kind === "program_missing" || (failure?.kind === "daemon_unreachable" && !this.problem);
    this.view.message = failure && !usual ? plain(failure.text) : this.engines;
    const waiting = this.table.waiting.length;
    this.view.badge = waiting > 0 ? { value: waiting, tooltip: "sessions wait for you" } : undefined;
    const word = state.kind === "connected" && this.table.all === undefined ? "connecting" : state.kind;
    void commands.executeCommand(
      "setContext",
      "abx.state",
      failure?.kind === "program_missing" ? "missing" : word,
    );
  }

  /** An engine that is away changes no session: only this tells why nothing can be done. */
  private async look(): Promise<void> {
    const info = await this.client.call("daemon.info", {}).catch(() => undefined);
    const away = info?.engines.filter((engine) => engine.health === "unavailable") ?? [];
    const told = away.map((engine) => `${engine.name} does not answer: ${engine.problem ?? "start it"}`);
    this.engines = told.length > 0 ? plain(told.join("; ")) : undefined;
    this.show();
  }

  /** Shows a word of the daemon to the user, once. */
  private async notice(text: string | null | undefined): Promise<void> {
    if (!text || this.memory.get(NOTICE) === text) return;
    await this.memory.update(NOTICE, text);
    await window.showInformationMessage(`abx: ${plain(text)}`);
  }
}
