/** The status bar: how many sessions run, and whose agent waits for its user. */

import { commands, StatusBarAlignment, ThemeColor, window, type Disposable } from "vscode";
import type { Client } from "../client/connection";
import type { SessionTable } from "../client/sessions";
import type { Session } from "../protocol";
import { settings } from "./settings";
import { plain } from "./words";

export class Status implements Disposable {
  private readonly item = window.createStatusBarItem("abx.status", StatusBarAlignment.Left, 10);
  private readonly listening: { dispose(): void }[];

  constructor(
    private readonly client: Client,
    private readonly table: SessionTable,
  ) {
    this.item.name = "abx sessions";
    this.listening = [
      client.onState(() => this.show()),
      table.onChange(() => this.show()),
      table.onWaiting((session) => void this.ask(session)),
    ];
    this.show();
  }

  dispose(): void {
    for (const one of this.listening) one.dispose();
    this.item.dispose();
  }

  private show(): void {
    const sessions = this.table.all;
    // Who does not use abx here sees nothing of it.
    if (this.client.state.kind !== "connected" || !sessions || sessions.length === 0) return this.item.hide();
    const { waiting } = this.table;
    const running = sessions.filter((session) => session.status === "running").length;
    this.item.text =
      waiting.length > 0 ? `$(bell-dot) ${waiting.length} waiting` : `$(vm) ${running} running`;
    this.item.backgroundColor =
      waiting.length > 0 ? new ThemeColor("statusBarItem.warningBackground") : undefined;
    this.item.command = waiting.length > 0 ? "abx.session.attention" : "abx.sessions.focus";
    const lines = waiting.map(
      (session) => `${session.name}: ${plain(session.attention_note ?? "waits for you")}`,
    );
    this.item.tooltip =
      lines.length > 0 ? lines.join("\n") : `${running} of ${sessions.length} abx sessions run`;
    this.item.show();
  }

  private async ask(session: Session): Promise<void> {
    if (!settings.notifyWaiting()) return;
    const note = session.attention_note ? `: ${plain(session.attention_note)}` : "";
    const chosen = await window.showInformationMessage(`${session.name} waits for you${note}`, "Attach");
    if (chosen === "Attach") await commands.executeCommand("abx.session.attach", session.name);
  }
}
