/** What the user set, read anew at each use. */

import { workspace } from "vscode";

const DEFAULT_PROGRAM = "abx";

export type MountWorkspace = "ask" | "always" | "never";

export const settings = {
  program: () => text("path") ?? DEFAULT_PROGRAM,
  home: () => text("home"),
  socket: () => text("socket"),
  autostart: () => flag("autostart", true),
  agent: () => text("start.agent"),
  template: () => text("start.template"),
  image: () => text("start.image"),
  mountWorkspace: () => (text("start.mountWorkspace") ?? "ask") as MountWorkspace,
  attachAfterStart: () => flag("start.attach", true),
  notifyWaiting: () => flag("notifyWaiting", true),
  scrollback: () => workspace.getConfiguration("abx").get<number>("terminal.scrollback", 500),
};

function text(name: string): string | undefined {
  return workspace.getConfiguration("abx").get<string>(name)?.trim() || undefined;
}

function flag(name: string, otherwise: boolean): boolean {
  return workspace.getConfiguration("abx").get<boolean>(name, otherwise);
}
