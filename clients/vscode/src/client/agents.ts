/** What an attach has to know of a session's agent: whether to open it, and where its credentials are. */

import type { DaemonInfoResult, Session } from "../protocol";

export interface AgentSettings {
  /** Whether the session's template says that an attach opens the agent, and not a shell. */
  attaches: boolean;
  /** The agent's credentials, as far as this environment has them. The daemon keeps them nowhere. */
  credentials: Record<string, string>;
}

/** Reads them from the daemon's settings. */
export function agentSettings(
  { settings }: Pick<DaemonInfoResult, "settings">,
  { agent, template }: Pick<Session, "agent" | "template">,
  env: NodeJS.ProcessEnv = process.env,
): AgentSettings {
  const value = (name: string) => settings.find((setting) => setting.name === name)?.value;
  const names = (value(`agents.${agent}.credentials`) ?? "").split(",").map((name) => name.trim());
  const set = names.flatMap((name) => (env[name] ? [[name, env[name]] as const] : []));
  return {
    attaches: value(`templates.${template}.attach`) === "agent",
    credentials: Object.fromEntries(set),
  };
}
