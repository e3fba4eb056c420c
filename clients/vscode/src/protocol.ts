// Rendered from proto-docs/openrpc.json by `npm run generate`; do not edit.

/**
 * How the session's agent is opened.
 */
export type AgentStart = "usual" | "resume" | "fresh";

/**
 * What a session's agent is doing.
 */
export type Attention = "working" | "waiting" | "idle" | "done" | (string & {});

/**
 * Why a session is not idle.
 */
export type Busy = "exec" | "terminal" | "client" | "cpu" | (string & {});

/**
 * A client.
 */
export interface By {
  /**
   * What it called itself in `daemon.hello`, else the name of its program.
   */
  client: string;
  /**
   * Its process, where the system tells.
   */
  pid?: number | null;
}

/**
 * A cursor.
 */
export interface Cursor {
  /**
   * From 0.
   */
  column: number;
  /**
   * From 0.
   */
  row: number;
  /**
   * Whether it is shown.
   */
  visible: boolean;
}

/**
 * What this home has on the engine, beside what its sessions explain.
 */
export interface DaemonCheckResult {
  /**
   * Containers that are no session's.
   */
  containers: OrphanContainer[];
  /**
   * Tags of snapshots' images that have no row.
   */
  images: string[];
  /**
   * How many layers each session's sandbox stands on.
   */
  layers: SessionLayers[];
  /**
   * What of this home takes space on the engine, and how much there is; null from a daemon that does not tell.
   */
  space: SpaceUse | null;
}

/**
 * The daemon's account of itself.
 */
export interface DaemonInfoResult {
  /**
   * Each engine's address, version and health.
   */
  engines: EngineInfo[];
  /**
   * Its home directory.
   */
  home: string;
  /**
   * Things the user should know, such as a table that had to be rebuilt.
   */
  notices: string[];
  /**
   * Its process id.
   */
  pid: number;
  /**
   * The protocol it speaks.
   */
  protocol: number;
  /**
   * Number of sessions.
   */
  sessions: number;
  /**
   * Settings and where each came from.
   */
  settings: Setting[];
  /**
   * The socket it listens on.
   */
  socket: string;
  /**
   * RFC 3339, UTC, milliseconds.
   */
  started_at: string;
  /**
   * The daemon's version.
   */
  version: string;
}

/**
 * What was deleted.
 */
export interface DeleteResult {
  /**
   * The session's name.
   */
  deleted: string;
  /**
   * Names of the snapshots deleted with it.
   */
  snapshots: string[];
}

/**
 * A result that says only that it was done.
 */
export interface Done {
  /**
   * Always true.
   */
  done: boolean;
}

/**
 * How bytes stand in JSON.
 */
export type Encoding = "utf-8" | "base64";

/**
 * The disk on which the engine keeps its data.
 */
export interface EngineDisk {
  /**
   * Bytes that are free.
   */
  free_bytes: number;
  /**
   * The engine's directory there.
   */
  path: string;
  /**
   * Bytes in all.
   */
  total_bytes: number;
}

/**
 * An engine as `daemon.info` shows it.
 */
export interface EngineInfo {
  /**
   * The address in use, or the one that was chosen last.
   */
  address: string | null;
  /**
   * The API version agreed on.
   */
  api_version: string | null;
  /**
   * The engine's clock minus ours, in milliseconds, when it was last compared.
   */
  clock_skew_ms: number | null;
  /**
   * `ok`, `unavailable`, or `checking` in the first moments of the daemon's life.
   */
  health: string;
  /**
   * `docker`.
   */
  name: string;
  /**
   * Why it is unavailable: each address tried and what it answered.
   */
  problem: string | null;
  /**
   * Where the address came from, for people: `flag --engine`, a file's path, `environment DOCKER_HOST`,
   * `context "NAME", ` and who chose it, `default sockets`, or that the sessions are there.
   */
  source: string | null;
  /**
   * The engine's own version.
   */
  version: string | null;
}

/**
 * The `data` of every error of ours.
 */
export interface ErrorData {
  /**
   * With `shutting_down`: false says that nothing was begun of what was asked, so that it may be asked again.
   */
  begun?: boolean | null;
  /**
   * The causes below the message, outermost first.
   */
  causes?: string[];
  /**
   * The command that the error is about: with kind `shutting_down`, one that goes on without who waited for it.
   */
  exec?: string | null;
  /**
   * What to do next, with the command to type.
   */
  hint?: string | null;
  /**
   * The stable kind; unknown kinds must be treated as `internal`.
   */
  kind: string;
  /**
   * The session that the error is about.
   */
  session?: string | null;
}

/**
 * One event.
 */
export interface Event {
  /**
   * When, in RFC 3339.
   */
  at: string;
  /**
   * Who asked for it; null where the daemon did it by itself.
   */
  by: By | null;
  /**
   * What else there is to say, by kind.
   */
  data: {
    [k: string]: unknown;
  };
  /**
   * What happened. A client passes over kinds that it does not know.
   */
  kind: string;
  /**
   * The session's revision from then on: a row with a higher one is newer than this.
   */
  revision: number | null;
  /**
   * Its number: one higher than the event before it. Those that are kept nowhere have another's: `subscribed` that of
   * the event after which the stream begins, `lagged` that of the last event of which its subscriber was told or that
   * was not for it, `progress` that of the newest.
   */
  seq: number;
  /**
   * The session's name then; null where it is about none.
   */
  session: string | null;
  /**
   * The session's id.
   */
  session_id: string | null;
  /**
   * Of which subscription; only in notifications.
   */
  subscription?: number | null;
}

/**
 * Something in the sandbox that a snapshot does not hold.
 */
export interface Excluded {
  /**
   * `bind`, `volume`, `tmpfs` or `process`.
   */
  kind: string;
  /**
   * The path, or the process's name.
   */
  target: string;
}

/**
 * A command as it is known.
 */
export interface ExecInfo {
  /**
   * Program and arguments.
   */
  cmd: string[];
  /**
   * Whether it goes on without anybody who waits for it.
   */
  detached: boolean;
  /**
   * RFC 3339, UTC, milliseconds; null while it runs.
   */
  ended_at: string | null;
  /**
   * Its code: its own, 124, 126, 127 or 128+n; null while it runs.
   */
  exit_code: number | null;
  /**
   * Its id, a UUIDv7.
   */
  id: string;
  /**
   * What its caller named it by.
   */
  key: string | null;
  /**
   * One line, when it did not end by itself.
   */
  reason: string | null;
  /**
   * The session's name.
   */
  session: string;
  /**
   * The signal that ended it, if one did.
   */
  signal: number | null;
  /**
   * RFC 3339, UTC, milliseconds.
   */
  started_at: string;
  /**
   * `running` or `exited`.
   */
  status: string;
  /**
   * The name of its terminal, if that has one.
   */
  terminal: string | null;
  /**
   * Whether it runs on a terminal.
   */
  tty: boolean;
}

/**
 * Output of a command, as far as it is kept.
 */
export interface ExecLogsResult {
  /**
   * Bytes that are no longer kept, of both streams.
   */
  dropped_bytes: number;
  /**
   * `utf-8`, or `base64` if either stream is not UTF-8.
   */
  encoding: Encoding;
  /**
   * Whether the command has ended and this is all.
   */
  ended: boolean;
  /**
   * Standard error.
   */
  stderr: string;
  /**
   * The same of `stderr`.
   */
  stderr_end: number;
  /**
   * Where `stderr` begins.
   */
  stderr_from: number;
  /**
   * Where to ask on.
   */
  stderr_next: number;
  /**
   * Standard output.
   */
  stdout: string;
  /**
   * How many bytes of `stdout` the command had written when it was asked: past `stdout_next` where that is more than
   * one answer holds.
   */
  stdout_end: number;
  /**
   * Where `stdout` begins: more than was asked for when what is between is no longer kept.
   */
  stdout_from: number;
  /**
   * Where to ask on.
   */
  stdout_next: number;
}

/**
 * What a command did.
 */
export interface ExecResult {
  /**
   * How long it ran, in milliseconds.
   */
  duration_ms: number;
  /**
   * `utf-8`, or `base64` if either stream is not UTF-8.
   */
  encoding: Encoding;
  /**
   * The command's code; 128+n when a signal ended it, 124 when the timeout did.
   */
  exit_code: number;
  /**
   * The exec's id.
   */
  id: string;
  /**
   * The signal that ended it, if one did.
   */
  signal: number | null;
  /**
   * Standard error.
   */
  stderr: string;
  /**
   * Standard output.
   */
  stdout: string;
  /**
   * Whether output was cut.
   */
  truncated: boolean;
}

/**
 * A part of a file.
 */
export interface FileContent {
  /**
   * The bytes. A character that the end of a part would cut is left to the next part.
   */
  content: string;
  /**
   * `utf-8`, or `base64` if the part is not UTF-8.
   */
  encoding: Encoding;
  /**
   * Size of the whole file.
   */
  size_bytes: number;
  /**
   * Whether the file goes on after this part.
   */
  truncated: boolean;
}

/**
 * One entry of a directory.
 */
export interface FileEntry {
  /**
   * What it is.
   */
  kind: FileKind;
  /**
   * Where a symbolic link leads, as it is written in it.
   */
  link_target: string | null;
  /**
   * Permission bits, as a number.
   */
  mode: number;
  /**
   * RFC 3339, UTC, milliseconds.
   */
  modified_at: string;
  /**
   * Its name; bytes that are not UTF-8 are replaced.
   */
  name: string;
  /**
   * Size in bytes; 0 of what is not a file.
   */
  size_bytes: number;
}

/**
 * What a file is.
 */
export type FileKind = "file" | "directory" | "symlink" | "other";

/**
 * What is in a directory.
 */
export interface FileListResult {
  /**
   * By name.
   */
  entries: FileEntry[];
  /**
   * The absolute path, links followed.
   */
  path: string;
  /**
   * Whether there are more than these.
   */
  truncated: boolean;
}

/**
 * What was written.
 */
export interface FileWriteResult {
  /**
   * The absolute path, links followed.
   */
  path: string;
  /**
   * Size of the file.
   */
  size_bytes: number;
}

/**
 * Who answers, and in which version.
 */
export interface HelloResult {
  /**
   * Its home directory.
   */
  home: string;
  /**
   * One line that the user should see once, such as old session files that could be imported.
   */
  notice: string | null;
  /**
   * Its process id.
   */
  pid: number;
  /**
   * The protocol it speaks.
   */
  protocol: number;
  /**
   * Always `abxd`.
   */
  server: string;
  /**
   * RFC 3339, UTC, milliseconds: with the process id, which daemon this is. A daemon that handed over keeps its process.
   */
  started_at: string;
  /**
   * The daemon's version.
   */
  version: string;
}

/**
 * What is done to a session that was idle for long enough.
 */
export type IdleAction = "stop" | "pause" | "save" | (string & {});

/**
 * What became of one imported row.
 */
export interface ImportOutcome {
  /**
   * The session's name.
   */
  name: string;
  /**
   * `imported`, `adopted`, `unchanged`, `conflict` or `refused`.
   */
  outcome: string;
  /**
   * The state it is listed with, if it is in the table now.
   */
  status: Status | null;
  /**
   * Why, for `conflict` and `refused`.
   */
  why: string | null;
}

/**
 * One row of an older tool.
 */
export interface ImportRow {
  /**
   * The agent's label.
   */
  agent?: string | null;
  /**
   * Commands run so far.
   */
  exec_count?: number;
  /**
   * When it was last used, RFC 3339.
   */
  last_active?: string | null;
  /**
   * `agentkernel` or `agent-sandbox`.
   */
  origin: string;
  /**
   * The session, in the terms of the store.
   */
  row: StoreRow;
  /**
   * Its sandbox's name in the older tool.
   */
  sandbox?: string | null;
  /**
   * The older tool's snapshot.
   */
  snapshot?: string | null;
}

/**
 * Resource limits; null is no limit.
 */
export interface Limits {
  /**
   * CPUs, fractions allowed.
   */
  cpus?: number | null;
  /**
   * Memory, in bytes.
   */
  memory_bytes?: number | null;
  /**
   * Number of processes and threads.
   */
  pids?: number | null;
}

/**
 * A directory of the host inside the sandbox.
 */
export interface Mount {
  /**
   * Whether the sandbox may only read it.
   */
  read_only?: boolean;
  /**
   * An absolute path of the host, or the name of a volume of the engine.
   */
  source: string;
  /**
   * An absolute path in the sandbox.
   */
  target: string;
}

/**
 * The sandbox's network.
 */
export type Network = "bridge" | "none" | (string & {});

/**
 * What becomes of a session that ran when its engine went, once that is back.
 */
export type OnBoot = "resume" | "stopped" | (string & {});

/**
 * A container of this home that is no session's.
 */
export interface OrphanContainer {
  /**
   * The engine's full id.
   */
  id: string;
  /**
   * Its name.
   */
  name: string;
  /**
   * A free name under which `session.adopt` takes it; null where the session that it is of has another container.
   */
  session: string | null;
  /**
   * `created`, `running`, `paused` or `exited`.
   */
  state: string;
}

/**
 * How a path differs.
 */
export type PathChange = "added" | "changed" | "deleted" | (string & {});

/**
 * A path that differs.
 */
export interface PathDifference {
  /**
   * How.
   */
  change: PathChange;
  /**
   * An absolute path. What is no UTF-8 of it is replaced.
   */
  path: string;
}

/**
 * A port of the sandbox that the host forwards.
 */
export interface Port {
  /**
   * The port in the sandbox.
   */
  container: number;
  /**
   * The port on the host's loopback; null or 0 asks for a free one. Filled in once the sandbox runs.
   */
  host?: number | null;
  /**
   * `tcp` or `udp`.
   */
  protocol?: string;
}

/**
 * How much a sandbox may do.
 */
export type Profile = "permissive" | "moderate" | "restrictive" | (string & {});

/**
 * Why a session does not run.
 */
export type Reason =
  "user" | "exited" | "oom_killed" | "timeout" | "idle" | "engine" | "removed" | (string & {});

/**
 * What goes on.
 */
export interface RestartResult {
  /**
   * The version that answered.
   */
  from: string;
  /**
   * The process, which stays.
   */
  pid: number;
  /**
   * The version that goes on.
   */
  to: string;
}

/**
 * What a save made.
 */
export interface SaveResult {
  /**
   * Names of those that were deleted because the session keeps only so many.
   */
  pruned: string[];
  /**
   * The session afterwards.
   */
  session: Session;
  /**
   * The new snapshot.
   */
  snapshot: Snapshot;
}

/**
 * A session, as `session.get` and `--json` give it. Absent values are null.
 */
export interface Session {
  /**
   * The agent's label.
   */
  agent: string;
  /**
   * What its agent is doing; null until something of it was heard since the sandbox came up.
   */
  attention?: Attention | null;
  /**
   * Since when.
   */
  attention_at?: string | null;
  /**
   * One line that came with it, from inside the sandbox.
   */
  attention_note?: string | null;
  /**
   * Why its idle time does not count; empty where it counts, and where it has none.
   */
  busy?: Busy[];
  /**
   * RFC 3339, UTC, milliseconds.
   */
  created_at: string;
  /**
   * `docker`, or `external` for a sandbox this daemon does not run.
   */
  engine: string;
  /**
   * Names of the session's environment variables; their values are masked as `***`.
   */
  env?: {
    [k: string]: string;
  };
  /**
   * Commands run in it so far.
   */
  exec_count: number;
  /**
   * When its timeout will stop it.
   */
  expires_at?: string | null;
  /**
   * UUIDv7.
   */
  id: string;
  /**
   * What that is.
   */
  idle_action?: IdleAction | null;
  /**
   * When something will be done, if nothing is used until then.
   */
  idle_at?: string | null;
  /**
   * Idle time after which something is done to it, in milliseconds; null is never.
   */
  idle_ms?: number | null;
  /**
   * Since when its idle time counts; null while it does not.
   */
  idle_since?: string | null;
  /**
   * The image it was started from, as asked for.
   */
  image?: string | null;
  /**
   * The immutable id of the image that the sandbox runs on.
   */
  image_id?: string | null;
  /**
   * How many snapshots stay when it is saved: the oldest beyond that and without a note are deleted. Null for all.
   */
  keep?: number | null;
  /**
   * When it was last used.
   */
  last_active: string;
  /**
   * When a client last connected or attached.
   */
  last_connected?: string | null;
  /**
   * Resource limits.
   */
  limits: Limits;
  /**
   * The user's own labels.
   */
  metadata: {
    [k: string]: string;
  };
  /**
   * Further mounts.
   */
  mounts?: Mount[];
  /**
   * The name given by the user; unique.
   */
  name: string;
  /**
   * The sandbox's network.
   */
  network: Network;
  /**
   * What becomes of it after its engine went, if that is another than the configuration says.
   */
  on_boot?: OnBoot | null;
  /**
   * How often the kernel ended something in it for want of memory.
   */
  oom_events: number;
  /**
   * What is being done right now, else null.
   */
  operation?: string | null;
  /**
   * Forwarded ports.
   */
  ports: Port[];
  /**
   * How much the sandbox may do.
   */
  profile?: Profile;
  /**
   * Why it does not run, else null.
   */
  reason?: Reason | null;
  /**
   * Raised by one at every change.
   */
  revision: number;
  /**
   * What runs its commands: `init` (abx-init, in the sandbox) or `engine`; null where this daemon runs none.
   */
  runtime?: string | null;
  /**
   * The sandbox's name: the container's name.
   */
  sandbox: string;
  /**
   * The engine's full id of the container.
   */
  sandbox_id?: string | null;
  /**
   * The newest snapshot's name.
   */
  snapshot?: string | null;
  /**
   * Number of snapshots.
   */
  snapshots: number;
  /**
   * What state it is in.
   */
  status: Status;
  /**
   * The template it was started from.
   */
  template: string;
  /**
   * Timeout since start or resume, in milliseconds; null is never.
   */
  timeout_ms?: number | null;
  /**
   * In what it is not as its snapshot was saved: a mount that is another, a volume that is new. In the answers to
   * `session.resume`, `session.connect` and `session.fork` alone, where they made a sandbox from a snapshot.
   */
  warnings?: string[];
  /**
   * The host directory that it works on.
   */
  workspace?: Workspace | null;
}

/**
 * How deep a session stands on snapshots.
 */
export interface SessionLayers {
  /**
   * Layers of the image that its sandbox is made from.
   */
  layers: number;
  /**
   * The session's name.
   */
  name: string;
}

/**
 * One setting and where its value came from.
 */
export interface Setting {
  /**
   * Its name in `config.toml`.
   */
  name: string;
  /**
   * `flag NAME`, `environment NAME`, a file's path, or `default`.
   */
  source: string;
  /**
   * Its value; secrets are masked.
   */
  value: string;
}

/**
 * A terminal's size in characters: 1 to 1,000 each; what is beyond is taken as the nearest of these.
 */
export interface Size {
  /**
   * Columns.
   */
  cols: number;
  /**
   * Rows.
   */
  rows: number;
}

/**
 * A saved state of a session's file system.
 */
export interface Snapshot {
  /**
   * RFC 3339, UTC, milliseconds.
   */
  created_at: string;
  /**
   * Who asked for it: a client as events name it, or `abxd` for one that it took by itself. Null for one from before
   * that was noted.
   */
  creator?: By | null;
  /**
   * What it does not hold.
   */
  excluded: Excluded[];
  /**
   * Immutable; what resume uses.
   */
  image_id: string;
  /**
   * Unique among all snapshots.
   */
  name: string;
  /**
   * The user's words.
   */
  note?: string | null;
  /**
   * What of that is its own: its layer. The rest is shared with the image below it. Null where that is not known.
   */
  own_bytes?: number | null;
  /**
   * The snapshot that the files came from.
   */
  parent?: string | null;
  /**
   * The session's name; kept when the session is deleted and its snapshots are not.
   */
  session: string;
  /**
   * Size of the whole image.
   */
  size_bytes: number;
}

/**
 * In what two states of files differ.
 */
export interface SnapshotDiffResult {
  /**
   * By path; at most 10,000.
   */
  differences: PathDifference[];
  /**
   * Whether there are more.
   */
  truncated: boolean;
}

/**
 * What was exported.
 */
export interface SnapshotExportResult {
  /**
   * The file.
   */
  path: string;
  /**
   * Its size.
   */
  size_bytes: number;
  /**
   * The snapshot's name.
   */
  snapshot: string;
}

/**
 * What was imported.
 */
export interface SnapshotImportResult {
  /**
   * The session that was made, if one was asked for.
   */
  session: Session | null;
  /**
   * The snapshot. Its name is the one in the file, with a number behind it where that is taken.
   */
  snapshot: Snapshot;
}

/**
 * What was deleted, or would be.
 */
export interface SnapshotPruneResult {
  /**
   * Whether nothing was deleted.
   */
  dry_run: boolean;
  /**
   * What that gives back on the engine's disk, as far as it is known: a layer on which another snapshot or a container
   * stands goes only with the last of those.
   */
  freed_bytes: number;
  /**
   * Where all sessions were meant, the names of those that were passed over: they are on another engine than the one that
   * answers.
   */
  skipped: string[];
  /**
   * The snapshots, as they were.
   */
  snapshots: Snapshot[];
}

/**
 * What sandboxes and snapshots take.
 */
export interface SpaceUse {
  /**
   * Bytes that snapshots may take; null without a limit.
   */
  budget_bytes: number | null;
  /**
   * The engine's disk; null where it is not this machine's.
   */
  disk: EngineDisk | null;
  /**
   * Bytes that sandboxes have written to files of their own.
   */
  sandboxes_bytes: number;
  /**
   * Bytes of snapshots that no image below them has.
   */
  snapshots_bytes: number;
}

/**
 * What state a session is in.
 */
export type Status =
  "starting" | "running" | "paused" | "stopped" | "saved" | "lost" | "unknown" | (string & {});

/**
 * Whether a row was there.
 */
export interface StoreDeleteResult {
  /**
   * True if it was there and is gone now.
   */
  deleted: boolean;
}

/**
 * A row of the store that maps a name to a sandbox which this daemon does not run.
 */
export interface StoreRow {
  /**
   * RFC 3339; now if absent.
   */
  created_at?: string | null;
  /**
   * RFC 3339.
   */
  last_connected?: string | null;
  /**
   * String to string.
   */
  metadata?: {
    [k: string]: string;
  };
  /**
   * The session's name.
   */
  name: string;
  /**
   * Which store the row is in, such as the path of a directory. Names are unique in each; absent for the one that also
   * holds what was imported.
   */
  namespace?: string | null;
  /**
   * The sandbox's id in the other program.
   */
  sandbox_id?: string | null;
  /**
   * The other program's word for the state; abx shows `unknown`.
   */
  status?: string | null;
  /**
   * The template's name.
   */
  template?: string | null;
  [k: string]: unknown;
}

/**
 * The table.
 */
export interface TableDocument {
  /**
   * The form of this document: 1.
   */
  abx_table: number;
  /**
   * RFC 3339, UTC, milliseconds.
   */
  exported_at?: string;
  /**
   * The home that it is of.
   */
  home?: string;
  /**
   * Sessions, oldest first.
   */
  sessions: TableSession[];
  /**
   * Snapshots, oldest first; also those that were kept when their session was deleted. Of each the row alone: its files
   * are an image of the engine.
   */
  snapshots?: TableSnapshot[];
  /**
   * The version of abx that wrote it.
   */
  version?: string;
}

/**
 * Where a row of another program came from.
 */
export interface TableExternal {
  /**
   * What else it stored; null where it was left out.
   */
  extra?: {
    [k: string]: unknown;
  } | null;
  /**
   * `store`, `store:NAMESPACE`, `agentkernel`, `agent-sandbox` or `adopted`.
   */
  origin: string;
  /**
   * The other program's word for the state.
   */
  status?: string | null;
}

/**
 * A session, with what `session.get` does not tell.
 */
export interface TableSession {
  /**
   * Values of its environment; null where they were left out.
   */
  env?: {
    [k: string]: string;
  } | null;
  /**
   * Of a row that another program wrote: where it came from.
   */
  external?: TableExternal | null;
  /**
   * Those of its ports (`80/tcp`) whose port on the host was asked for.
   */
  fixed_ports?: string[];
  /**
   * As `session.get` gives it.
   */
  session: Session;
  /**
   * The user that commands run as; the image's own if absent.
   */
  user?: string | null;
}

/**
 * A snapshot, with its ids.
 */
export interface TableSnapshot {
  /**
   * UUIDv7.
   */
  id: string;
  /**
   * The id of the session whose timeline it is in; null where that was deleted.
   */
  session_id?: string | null;
  /**
   * As `snapshot.list` gives it.
   */
  snapshot: Snapshot;
}

/**
 * A terminal that a session has.
 */
export interface TerminalInfo {
  /**
   * How many are attached to it.
   */
  clients: number;
  /**
   * That command's program and arguments.
   */
  cmd: string[];
  /**
   * The id of the command on it.
   */
  exec: string;
  /**
   * The session's name.
   */
  session: string;
  /**
   * Its size.
   */
  size: Size | null;
  /**
   * RFC 3339, UTC, milliseconds.
   */
  started_at: string;
  /**
   * Its name in the session.
   */
  terminal: string;
}

/**
 * What a subscription of a terminal tells. A client passes over kinds that it does not know.
 */
export type TerminalNews =
  | {
      /**
       * The bytes.
       */
      data: string;
      /**
       * `utf-8`, or `base64` where they are not UTF-8. No character is cut in two.
       */
      encoding: Encoding;
      kind: "output";
    }
  | {
      /**
       * The code: its own, 124, 126, 127 or 128+n.
       */
      exit_code: number;
      kind: "ended";
      /**
       * One line for the user when it did not end by itself.
       */
      reason: string | null;
    }
  | {
      /**
       * Why.
       */
      error: WireError;
      kind: "error";
    };

/**
 * What a notification of method `terminal` says.
 */
export interface TerminalNotification {
  /**
   * What there is to tell.
   */
  result: TerminalNews;
  /**
   * Which subscription.
   */
  subscription: number;
}

/**
 * A terminal that is open.
 */
export interface TerminalOpened {
  /**
   * The id of the command on it.
   */
  exec: string;
  /**
   * Whether it was there already: then what comes first paints its screen.
   */
  followed: boolean;
  /**
   * One line for the user on what was started.
   */
  note: string | null;
  /**
   * The subscription's id.
   */
  subscription: number;
}

/**
 * What a terminal shows.
 */
export interface TerminalScreen {
  /**
   * Whether a program has the alternate screen.
   */
  alternate: boolean;
  /**
   * Where the cursor is, from 0, on the screen.
   */
  cursor: Cursor;
  /**
   * Its lines without blanks at their ends; those of the scrollback come first.
   */
  lines: string[];
  /**
   * How many of them are scrollback.
   */
  scrollback: number;
  /**
   * Its size.
   */
  size: Size;
  /**
   * The title that the program set.
   */
  title: string;
}

/**
 * What is waited for.
 */
export type WaitFor =
  | "working"
  | "waiting"
  | "idle"
  | "done"
  | "attention"
  | "exit"
  | "running"
  | "paused"
  | "stopped"
  | "saved"
  | "deleted"
  | (string & {});

/**
 * What came of waiting.
 */
export interface WaitResult {
  /**
   * Whether it is so; false when the time is up.
   */
  reached: boolean;
  /**
   * The session as it was then; null when it is deleted and that, or its exit, was waited for.
   */
  session: Session | null;
}

/**
 * The error object of JSON-RPC, as abx sends it.
 */
export interface WireError {
  /**
   * Positive for our kinds; JSON-RPC's own codes are negative.
   */
  code: number;
  /**
   * Absent on errors of JSON-RPC itself.
   */
  data?: ErrorData | null;
  /**
   * One line for people.
   */
  message: string;
}

/**
 * The host directory that a session works on.
 */
export interface Workspace {
  /**
   * Whether the sandbox may only read it.
   */
  read_only?: boolean;
  /**
   * Absolute path on the host, links resolved.
   */
  source: string;
  /**
   * Absolute path in the sandbox.
   */
  target: string;
}

/**
 * Params of `daemon.hello`.
 */
export interface DaemonHelloParams {
  /**
   * The client's name, for the log.
   */
  client: string;
  /**
   * The protocol it speaks.
   */
  protocol: number;
  /**
   * The client's version.
   */
  version: string;
}

/**
 * Params of `daemon.info`.
 */
export interface DaemonInfoParams {}

/**
 * Params of `daemon.restart`.
 */
export interface DaemonRestartParams {
  /**
   * The program, by its absolute path; by default the file that the daemon was started from.
   */
  program?: string | null;
}

/**
 * Params of `daemon.check`.
 */
export interface DaemonCheckParams {}

/**
 * Params of `daemon.shutdown`.
 */
export interface DaemonShutdownParams {}

/**
 * Params of `rpc.discover`.
 */
export interface RpcDiscoverParams {}

/**
 * Params of `session.start`.
 */
export interface SessionStartParams {
  /**
   * Any printable Unicode without `/`, up to 128 bytes.
   */
  name: string;
  /**
   * `claude` if absent.
   */
  agent?: string | null;
  /**
   * `docker` if absent.
   */
  engine?: string | null;
  /**
   * Environment of every command of the session. Never written into the container's configuration.
   */
  env?: {
    [k: string]: string;
  };
  /**
   * What to do then instead; the template's if absent.
   */
  idle_action?: IdleAction | null;
  /**
   * Stop after this long without use, in milliseconds; 0 is never.
   */
  idle_ms?: number | null;
  /**
   * The template's image if absent. Pulled if the engine does not have it.
   */
  image?: string | null;
  /**
   * After each save, delete the oldest snapshots beyond this many that have no note; 0 keeps all.
   */
  keep?: number | null;
  /**
   * Resource limits; those absent come from template and profile.
   */
  limits?: Limits;
  /**
   * The user's own labels.
   */
  metadata?: {
    [k: string]: string;
  };
  /**
   * Further mounts.
   */
  mounts?: Mount[];
  /**
   * The template's or the profile's if absent.
   */
  network?: Network | null;
  /**
   * What becomes of it after its engine went; the template's, else the configuration's if absent.
   */
  on_boot?: OnBoot | null;
  /**
   * Progress is sent as `event` notifications with this id on the same connection (not on plain HTTP).
   */
  op?: string | null;
  /**
   * Ports to forward, on the host's loopback only.
   */
  ports?: Port[];
  /**
   * `moderate` if absent.
   */
  profile?: Profile | null;
  /**
   * If a session of this name exists, connect to it instead of failing.
   */
  reuse?: boolean;
  /**
   * `base` if absent.
   */
  template?: string | null;
  /**
   * Stop this long after start and after each resume, in milliseconds; 0 is never.
   */
  timeout_ms?: number | null;
  /**
   * The host directory to work on; its `target` may be empty for `/workspace`.
   */
  workspace?: Mount | null;
}

/**
 * Params of `session.list`.
 */
export interface SessionListParams {
  /**
   * Only this agent.
   */
  agent?: string | null;
  /**
   * Only these states; all if empty.
   */
  status?: Status[];
}

/**
 * Params of `session.get`.
 */
export interface SessionGetParams {
  /**
   * The session's name; its sandbox's name is understood too.
   */
  name: string;
}

/**
 * Params of `session.stop`.
 */
export interface SessionStopParams {
  /**
   * The session.
   */
  name: string;
  /**
   * Time between TERM and KILL, in milliseconds; 10,000 if absent.
   */
  grace_ms?: number | null;
}

/**
 * Params of `session.save`.
 */
export interface SessionSaveParams {
  /**
   * The session.
   */
  name: string;
  /**
   * Take it under a pause and leave the session as it was.
   */
  keep_running?: boolean;
  /**
   * The user's words.
   */
  note?: string | null;
  /**
   * Id for progress notifications.
   */
  op?: string | null;
  /**
   * The snapshot's name; `NAME-YYYYMMDD`, then `-2` and so on, if absent.
   */
  snapshot?: string | null;
  /**
   * How long the engine may take over it, in milliseconds, 1,000 to 86,400,000; past it the save is given up with
   * `engine_timeout`. The setting `save_timeout` if absent.
   */
  timeout_ms?: number | null;
}

/**
 * Params of `session.resume`.
 */
export interface SessionResumeParams {
  /**
   * The session.
   */
  name: string;
  /**
   * Do not save first what going back replaces: what no snapshot holds is lost. Only with `snapshot`.
   */
  discard?: boolean;
  /**
   * Id for progress notifications.
   */
  op?: string | null;
  /**
   * Go back to this snapshot.
   */
  snapshot?: string | null;
}

/**
 * Params of `session.delete`.
 */
export interface SessionDeleteParams {
  /**
   * The session.
   */
  name: string;
  /**
   * Whether one whose sandbox is on another engine than the one that answers goes too. What is there stays there, and
   * comes back as a session when that engine is used again.
   */
  forget?: boolean;
  /**
   * Leave its snapshots.
   */
  keep_snapshots?: boolean;
}

/**
 * Params of `session.connect`.
 */
export interface SessionConnectParams {
  /**
   * The session's name; its sandbox's name is understood too.
   */
  name: string;
  /**
   * Id for progress notifications: one says that the session is being resumed.
   */
  op?: string | null;
  /**
   * Whether a session that does not run is resumed first; what the daemon's configuration says (`auto_resume`, true by
   * default) if absent.
   */
  resume?: boolean | null;
}

/**
 * Params of `session.pause`.
 */
export interface SessionPauseParams {
  /**
   * The session's name; its sandbox's name is understood too.
   */
  name: string;
}

/**
 * Params of `session.unpause`.
 */
export interface SessionUnpauseParams {
  /**
   * The session's name; its sandbox's name is understood too.
   */
  name: string;
}

/**
 * Params of `session.fork`.
 */
export interface SessionForkParams {
  /**
   * The session to fork.
   */
  name: string;
  /**
   * The new session's name.
   */
  new_name: string;
  /**
   * Id for progress notifications.
   */
  op?: string | null;
  /**
   * From this snapshot; one is taken now if absent.
   */
  snapshot?: string | null;
}

/**
 * Params of `session.rename`.
 */
export interface SessionRenameParams {
  /**
   * The session.
   */
  name: string;
  /**
   * Its new name.
   */
  new_name: string;
}

/**
 * Params of `session.update`.
 */
export interface SessionUpdateParams {
  /**
   * The session.
   */
  name: string;
  /**
   * What to do then.
   */
  idle_action?: IdleAction | null;
  /**
   * 0 is never.
   */
  idle_ms?: number | null;
  /**
   * From the next save on; 0 keeps all.
   */
  keep?: number | null;
  /**
   * Set these keys; null removes a key.
   */
  metadata?: {
    [k: string]: string | null;
  };
  /**
   * What becomes of it after its engine went.
   */
  on_boot?: OnBoot | null;
  /**
   * Counted from now if the session runs; 0 is never.
   */
  timeout_ms?: number | null;
}

/**
 * Params of `session.notify`.
 */
export interface SessionNotifyParams {
  /**
   * The session, which runs.
   */
  name: string;
  /**
   * `waiting` if absent.
   */
  state?: Attention | null;
  /**
   * One line; what is longer than 512 bytes is cut.
   */
  text?: string | null;
}

/**
 * Params of `session.wait`.
 */
export interface SessionWaitParams {
  /**
   * Until when. What is so already is not waited for.
   */
  for: WaitFor;
  /**
   * The session, whatever it is renamed to.
   */
  name: string;
  /**
   * Give up after this many milliseconds; never if absent or 0.
   */
  timeout_ms?: number | null;
}

/**
 * Params of `session.import`.
 */
export interface SessionImportParams {
  /**
   * The rows, in the order in which they may claim a name.
   */
  rows: ImportRow[];
  /**
   * Id for progress notifications.
   */
  op?: string | null;
}

/**
 * Params of `session.adopt`.
 */
export interface SessionAdoptParams {
  /**
   * The container, by its name or its full id.
   */
  container: string;
  /**
   * The session's name.
   */
  name: string;
  /**
   * `claude` if absent, or what the container's labels say.
   */
  agent?: string | null;
}

/**
 * Params of `snapshot.list`.
 */
export interface SnapshotListParams {
  /**
   * This session's; all if absent.
   */
  name?: string | null;
}

/**
 * Params of `snapshot.delete`.
 */
export interface SnapshotDeleteParams {
  /**
   * Their names. All are checked before the first is deleted.
   */
  snapshots: string[];
}

/**
 * Params of `snapshot.diff`.
 */
export interface SnapshotDiffParams {
  /**
   * A snapshot.
   */
  from: string;
  /**
   * Another one; the session of the first as it is now if absent.
   */
  to?: string | null;
}

/**
 * Params of `snapshot.export`.
 */
export interface SnapshotExportParams {
  /**
   * An absolute path on the daemon's machine at which nothing is. The file gets its name when it is whole.
   */
  path: string;
  /**
   * The snapshot.
   */
  snapshot: string;
  /**
   * Id for progress notifications.
   */
  op?: string | null;
}

/**
 * Params of `snapshot.import`.
 */
export interface SnapshotImportParams {
  /**
   * An absolute path on the daemon's machine.
   */
  path: string;
  /**
   * What messages call the file, where it stands in for something else; its path if absent.
   */
  called?: string | null;
  /**
   * Id for progress notifications.
   */
  op?: string | null;
  /**
   * Make a saved session of this name, to be resumed. Without it the snapshot is in nobody's timeline.
   */
  session?: string | null;
}

/**
 * Params of `snapshot.prune`.
 */
export interface SnapshotPruneParams {
  /**
   * Tell what would be deleted, and delete nothing.
   */
  dry_run?: boolean;
  /**
   * The newest of each session that stay. One of this and `older_ms` must be given; with both, what goes is older and
   * beyond the newest.
   */
  keep?: number | null;
  /**
   * Of these sessions; of all if empty. Snapshots that outlived their session are found by its name.
   */
  names?: string[];
  /**
   * Only those taken longer ago than this, in milliseconds.
   */
  older_ms?: number | null;
}

/**
 * Params of `exec.run`.
 */
export interface ExecRunParams {
  /**
   * Program and arguments.
   */
  cmd: string[];
  /**
   * The session, by name or sandbox name.
   */
  session: string;
  /**
   * The workspace, else the image's working directory, if absent.
   */
  cwd?: string | null;
  /**
   * Added to the session's environment for this run.
   */
  env?: {
    [k: string]: string;
  };
  /**
   * Whether a session that does not run is resumed first; what the daemon's configuration says (`auto_resume`, true by
   * default) if absent.
   */
  resume?: boolean | null;
  /**
   * Input, as text; none if absent. On a terminal its end-of-file character follows.
   */
  stdin?: string | null;
  /**
   * Kill it after this many milliseconds; the exit code is then 124.
   */
  timeout?: number | null;
  /**
   * Run it on a terminal; output then comes in `stdout` alone.
   */
  tty?: boolean;
  /**
   * User name or id, optionally `:group`.
   */
  user?: string | null;
}

/**
 * Params of `exec.start`.
 */
export interface ExecStartParams {
  /**
   * Program and arguments.
   */
  cmd: string[];
  /**
   * The session, by name or sandbox name.
   */
  session: string;
  /**
   * The workspace, else the image's working directory, if absent.
   */
  cwd?: string | null;
  /**
   * Added to the session's environment for this run.
   */
  env?: {
    [k: string]: string;
  };
  /**
   * A name of the caller's choice: asking again with the same one gives the command that the first asking started.
   */
  key?: string | null;
  /**
   * Whether a session that does not run is resumed first; what the daemon's configuration says (`auto_resume`, true by
   * default) if absent.
   */
  resume?: boolean | null;
  /**
   * Input, as text, after which its input ends; none if absent.
   */
  stdin?: string | null;
  /**
   * End it after this many milliseconds; the exit code is then 124.
   */
  timeout?: number | null;
  /**
   * User name or id, optionally `:group`.
   */
  user?: string | null;
}

/**
 * Params of `exec.list`.
 */
export interface ExecListParams {
  /**
   * The session, by name or sandbox name; all if absent.
   */
  session?: string | null;
}

/**
 * Params of `exec.logs`.
 */
export interface ExecLogsParams {
  /**
   * Its id, or a beginning of it that no other has.
   */
  id: string;
  /**
   * The same of standard error.
   */
  stderr_from?: number;
  /**
   * Bytes of standard output to leave out, as counted from its beginning.
   */
  stdout_from?: number;
}

/**
 * Params of `exec.kill`.
 */
export interface ExecKillParams {
  /**
   * Its id, or a beginning of it that no other has.
   */
  id: string;
  /**
   * The signal's number; 15 (TERM), and 9 (KILL) five seconds later to what is left, if absent.
   */
  signal?: number | null;
}

/**
 * Params of `exec.wait`.
 */
export interface ExecWaitParams {
  /**
   * Its id, or a beginning of it that no other has.
   */
  id: string;
  /**
   * Give up after this many milliseconds, and tell how it stands; never if absent.
   */
  timeout?: number | null;
}

/**
 * Params of `terminal.list`.
 */
export interface TerminalListParams {
  /**
   * The session, by name or sandbox name; all if absent.
   */
  session?: string | null;
}

/**
 * Params of `terminal.peek`.
 */
export interface TerminalPeekParams {
  /**
   * The session, by name or sandbox name.
   */
  session: string;
  /**
   * Lines of scrollback above the screen: at most the 1,000 that are kept, and what fits into 128 KiB.
   */
  scrollback?: number;
  /**
   * Its name; `main` if absent.
   */
  terminal?: string;
}

/**
 * Params of `terminal.open`.
 */
export interface TerminalOpenParams {
  /**
   * The session, by name or sandbox name.
   */
  session: string;
  /**
   * Start the session's agent in place of `cmd`.
   */
  agent?: AgentStart | null;
  /**
   * Program and arguments, to start it with; the session's shell if empty. A terminal that runs another command already
   * refuses.
   */
  cmd?: string[];
  /**
   * The workspace, else the image's working directory, if absent.
   */
  cwd?: string | null;
  /**
   * Added to the session's environment where it is started.
   */
  env?: {
    [k: string]: string;
  };
  /**
   * This client only looks: its size does not count, and what it writes counts as somebody else's.
   */
  read_only?: boolean;
  /**
   * Whether a session that does not run is resumed first; what the daemon's configuration says (`auto_resume`, true by
   * default) if absent.
   */
  resume?: boolean | null;
  /**
   * Lines of scrollback to paint above the screen: at most the 1,000 that are kept.
   */
  scrollback?: number;
  /**
   * This client's size; if absent, that which the terminal has, and 80 by 24 for one that is started.
   */
  size?: Size | null;
  /**
   * Its name; `main` if absent.
   */
  terminal?: string;
  /**
   * User name or id, optionally `:group`.
   */
  user?: string | null;
}

/**
 * Params of `terminal.unsubscribe`.
 */
export interface TerminalUnsubscribeParams {
  /**
   * Its id, as it was given when it began.
   */
  subscription: number;
}

/**
 * Params of `terminal.write`.
 */
export interface TerminalWriteParams {
  /**
   * The keys, at most 64 KiB of them.
   */
  data: string;
  /**
   * The session, by name or sandbox name.
   */
  session: string;
  /**
   * How they stand in `data`; `utf-8` if absent.
   */
  encoding?: Encoding;
  /**
   * Its name; `main` if absent.
   */
  terminal?: string;
}

/**
 * Params of `terminal.resize`.
 */
export interface TerminalResizeParams {
  /**
   * The session, by name or sandbox name.
   */
  session: string;
  /**
   * The size.
   */
  size: Size;
  /**
   * Its name; `main` if absent.
   */
  terminal?: string;
}

/**
 * Params of `terminal.close`.
 */
export interface TerminalCloseParams {
  /**
   * The session, by name or sandbox name.
   */
  session: string;
  /**
   * Its name; `main` if absent.
   */
  terminal?: string;
}

/**
 * Params of `file.read`.
 */
export interface FileReadParams {
  /**
   * The file; a relative path counts from the directory in which commands run. Symbolic links are followed, and never
   * out of the sandbox.
   */
  path: string;
  /**
   * The session, by name or sandbox name.
   */
  session: string;
  /**
   * Most bytes to give; 1 MiB if absent, and never more.
   */
  limit?: number | null;
  /**
   * Bytes to pass over; 0 if absent.
   */
  offset?: number | null;
  /**
   * Whether a session that does not run is resumed first (where not, its files are read and written as they lie, if it has a
   * container); what the daemon's configuration says (`auto_resume`, true by default) if absent.
   */
  resume?: boolean | null;
}

/**
 * Params of `file.write`.
 */
export interface FileWriteParams {
  /**
   * All of its bytes.
   */
  content: string;
  /**
   * The file; a relative path counts from the directory in which commands run. A symbolic link is followed.
   */
  path: string;
  /**
   * The session, by name or sandbox name.
   */
  session: string;
  /**
   * Make the directories above it that are missing.
   */
  create_dirs?: boolean;
  /**
   * How they are written in `content`; `utf-8` if absent.
   */
  encoding?: Encoding;
  /**
   * Permission bits, as a number up to 4095 (420 is 0o644); those of the file that is there, else 0o644, if absent.
   */
  mode?: number | null;
  /**
   * Whether a session that does not run is resumed first (where not, its files are read and written as they lie, if it has a
   * container); what the daemon's configuration says (`auto_resume`, true by default) if absent.
   */
  resume?: boolean | null;
}

/**
 * Params of `file.list`.
 */
export interface FileListParams {
  /**
   * The session, by name or sandbox name.
   */
  session: string;
  /**
   * The directory; a relative path counts from the directory in which commands run, which it is itself if absent.
   */
  path?: string | null;
  /**
   * Whether a session that does not run is resumed first (where not, its files are read and written as they lie, if it has a
   * container); what the daemon's configuration says (`auto_resume`, true by default) if absent.
   */
  resume?: boolean | null;
}

/**
 * Params of `event.subscribe`.
 */
export interface EventSubscribeParams {
  /**
   * Only of these kinds, or all that begin with one that ends in a dot, such as `session.`; empty for all.
   */
  kinds?: string[];
  /**
   * Only of this session, by name or id.
   */
  session?: string | null;
  /**
   * Begin after this number with what is kept; absent for what comes from now on.
   */
  since?: number | null;
}

/**
 * Params of `event.unsubscribe`.
 */
export interface EventUnsubscribeParams {
  /**
   * Its id, as it was given when it began.
   */
  subscription: number;
}

/**
 * Params of `event.list`.
 */
export interface EventListParams {
  /**
   * Only of these kinds, as in `event.subscribe`.
   */
  kinds?: string[];
  /**
   * The last so many of them, as far as they fit into an answer; absent for all.
   */
  limit?: number | null;
  /**
   * Only of this session, by name or id; of one that is gone, also by the name that it had.
   */
  session?: string | null;
  /**
   * Begin after this number; 0 for the oldest that is kept. An answer ends after some 1 MiB: go on after the last of it,
   * until one is empty.
   */
  since?: number;
}

/**
 * Params of `store.save`.
 */
export interface StoreSaveParams {
  /**
   * The session's name.
   */
  name: string;
  /**
   * RFC 3339; now if absent.
   */
  created_at?: string | null;
  /**
   * RFC 3339.
   */
  last_connected?: string | null;
  /**
   * String to string.
   */
  metadata?: {
    [k: string]: string;
  };
  /**
   * Which store the row is in, such as the path of a directory. Names are unique in each; absent for the one that also
   * holds what was imported.
   */
  namespace?: string | null;
  /**
   * The sandbox's id in the other program.
   */
  sandbox_id?: string | null;
  /**
   * The other program's word for the state; abx shows `unknown`.
   */
  status?: string | null;
  /**
   * The template's name.
   */
  template?: string | null;
}

/**
 * Params of `store.load`.
 */
export interface StoreLoadParams {
  /**
   * The session's name.
   */
  name: string;
  /**
   * Which store it is in, as it was saved.
   */
  namespace?: string | null;
}

/**
 * Params of `store.list_all`.
 */
export interface StoreListAllParams {
  /**
   * Which one, as its rows were saved.
   */
  namespace?: string | null;
}

/**
 * Params of `store.delete`.
 */
export interface StoreDeleteParams {
  /**
   * The session's name.
   */
  name: string;
  /**
   * Which store it is in, as it was saved.
   */
  namespace?: string | null;
}

/**
 * Params of `table.export`.
 */
export interface TableExportParams {
  /**
   * With the values of environments, and what other programs stored with their rows.
   */
  with_secrets?: boolean;
}

/**
 * Params of `table.import`.
 */
export interface TableImportParams {
  /**
   * What was exported. A request has at most 8 MiB: of a larger one, send its sessions in parts, each with its snapshots.
   */
  document: TableDocument;
  /**
   * Id for progress notifications.
   */
  op?: string | null;
  /**
   * Give a session whose name is taken another, `NAME-2` and so on, rather than refuse it.
   */
  rename?: boolean;
}

/** Every method of the socket. */
export interface Methods {
  /** Exchanges versions. Clients of abx send it first on each connection; others may leave it out. */
  "daemon.hello": { params: DaemonHelloParams; result: HelloResult };
  /** Tells version, process, home and the health of each engine, without waiting for an engine. */
  "daemon.info": { params: DaemonInfoParams; result: DaemonInfoResult };
  /** Has another abxd, or the same program anew, go on in this process with this socket: nobody who connects meanwhile is refused, and commands, terminals and sandboxes go on. The program says first whether it would start. Connections that stay open are closed between two answers. */
  "daemon.restart": { params: DaemonRestartParams; result: RestartResult };
  /** Asks the engine what this home has there that no session explains, and how many layers sessions stand on. */
  "daemon.check": { params: DaemonCheckParams; result: DaemonCheckResult };
  /** Asks the daemon to stop: no new work, running operations finish or are recorded. Sandboxes keep running. */
  "daemon.shutdown": { params: DaemonShutdownParams; result: Done };
  /** Gives the OpenRPC document of this daemon. */
  "rpc.discover": { params: RpcDiscoverParams; result: unknown };
  /** Creates a session: the row first, then its sandbox, then running. On failure both are gone and the name is free. */
  "session.start": { params: SessionStartParams; result: Session };
  /** Lists sessions, newest first. Never waits for an engine. */
  "session.list": { params: SessionListParams; result: Session[] };
  /** Gives one session. Never waits for an engine. */
  "session.get": { params: SessionGetParams; result: Session };
  /** Stops the sandbox: TERM, grace, KILL. Container and files stay. A stopped session is left as it is. */
  "session.stop": { params: SessionStopParams; result: Session };
  /** Takes a snapshot with the sandbox stopped, or under a pause with `keep_running`. */
  "session.save": { params: SessionSaveParams; result: SaveResult };
  /** Brings a session back: the same container if it still exists, else one made from the newest snapshot. `snapshot` goes back to that one, after saving what it replaces, unless that is to be discarded. */
  "session.resume": { params: SessionResumeParams; result: Session };
  /** Removes the container and the row, and the snapshots unless they are to be kept. */
  "session.delete": { params: SessionDeleteParams; result: DeleteResult };
  /** Resumes the session if it does not run, and stamps `last_connected`. */
  "session.connect": { params: SessionConnectParams; result: Session };
  /** Freezes the sandbox; its memory is kept. */
  "session.pause": { params: SessionPauseParams; result: Session };
  /** Thaws a paused sandbox. */
  "session.unpause": { params: SessionUnpauseParams; result: Session };
  /** Starts a new session from a snapshot of this one, taken now if none is named. */
  "session.fork": { params: SessionForkParams; result: Session };
  /** Gives the session, and its sandbox, another name. */
  "session.rename": { params: SessionRenameParams; result: Session };
  /** Changes timeout, idle time, the number of kept snapshots, or metadata. One call makes one change: all of it or none. */
  "session.update": { params: SessionUpdateParams; result: Session };
  /** Says what the session's agent is doing. What is said holds against what the agent writes next. */
  "session.notify": { params: SessionNotifyParams; result: Session };
  /** Waits until a session or its agent is as wanted. */
  "session.wait": { params: SessionWaitParams; result: WaitResult };
  /** Takes over rows of the older tools. Adopts a container that still exists; never overwrites a row. */
  "session.import": { params: SessionImportParams; result: ImportOutcome[] };
  /** Makes a container that abx did not make, or that lost its row, a session. Refuses one that another session or another home has. */
  "session.adopt": { params: SessionAdoptParams; result: Session };
  /** Lists snapshots, newest first: of one session, or all. */
  "snapshot.list": { params: SnapshotListParams; result: Snapshot[] };
  /** Deletes snapshots by name and gives the names of those deleted. */
  "snapshot.delete": { params: SnapshotDeleteParams; result: string[] };
  /** Tells in what a snapshot differs from another, or from its session as it is now. A file that was only touched is the same. */
  "snapshot.diff": { params: SnapshotDiffParams; result: SnapshotDiffResult };
  /** Writes a snapshot to a new file, for `snapshot.import` on another machine. No value of a variable and no path of the host is in what abx adds to its files. */
  "snapshot.export": { params: SnapshotExportParams; result: SnapshotExportResult };
  /** Takes a snapshot over from a file that `snapshot.export` wrote; with `session`, as a saved session of that name. */
  "snapshot.import": { params: SnapshotImportParams; result: SnapshotImportResult };
  /** Deletes the older snapshots of sessions. Never the one that a session's container came from, nor the newest of a session without a container. */
  "snapshot.prune": { params: SnapshotPruneParams; result: SnapshotPruneResult };
  /** Runs a command to its end and gives its output, cut at 1 MiB per stream. A command's own failure is a result, not an error. */
  "exec.run": { params: ExecRunParams; result: ExecResult };
  /** Starts a command that goes on without its caller, and answers as soon as it runs. */
  "exec.start": { params: ExecStartParams; result: ExecInfo };
  /** Lists commands, oldest first: those that run, and the last 200 of each session that have ended. */
  "exec.list": { params: ExecListParams; result: ExecInfo[] };
  /** Gives output of a command as far as it is kept, at most 1 MiB per stream at once. */
  "exec.logs": { params: ExecLogsParams; result: ExecLogsResult };
  /** Sends a signal to a command and all that it started. One that has ended is fine. */
  "exec.kill": { params: ExecKillParams; result: ExecInfo };
  /** Waits for a command's end. */
  "exec.wait": { params: ExecWaitParams; result: ExecInfo };
  /** Lists the terminals of running sandboxes. */
  "terminal.list": { params: TerminalListParams; result: TerminalInfo[] };
  /** Gives what a terminal shows, as text, without attaching to it. */
  "terminal.peek": { params: TerminalPeekParams; result: TerminalScreen };
  /** Opens a terminal: comes back to the one of this name, or starts it. What it shows comes as notifications of method `terminal`, after the answer. Ending the subscription detaches; the program goes on. */
  "terminal.open": { params: TerminalOpenParams; result: TerminalOpened };
  /** Ends a subscription of this connection, and so detaches from its terminal. One that has ended is fine. */
  "terminal.unsubscribe": { params: TerminalUnsubscribeParams; result: Done };
  /** Types into a terminal, whoever has it open, and answers when that was taken. */
  "terminal.write": { params: TerminalWriteParams; result: Done };
  /** Sets a terminal's size. Where this connection has it open, that is its size there from now on; it holds until another who has it open does something. */
  "terminal.resize": { params: TerminalResizeParams; result: Done };
  /** Ends what runs on a terminal, with HUP and TERM, and KILL five seconds later. */
  "terminal.close": { params: TerminalCloseParams; result: Done };
  /** Gives a part of a file of a sandbox, at most 1 MiB at once. The session may be running, paused, stopped or saved. */
  "file.read": { params: FileReadParams; result: FileContent };
  /** Puts a file into a sandbox, in the place of one that is there: the engine removes that one and writes the new one in one call, so for an instant a program in the sandbox may see none, or a part. */
  "file.write": { params: FileWriteParams; result: FileWriteResult };
  /** Lists what is in a directory of a sandbox, by name, at most 10,000 entries. The engine reads all that is below it: a directory with more than 1 GiB or 200,000 files below it is refused. */
  "file.list": { params: FileListParams; result: FileListResult };
  /** Begins to send events as notifications of method `event`, and gives the subscription's id. The first has kind `subscribed` and tells from which number on. One that falls too far behind gets a last one of kind `lagged`. */
  "event.subscribe": { params: EventSubscribeParams; result: number };
  /** Ends a subscription of this connection. One that has ended is fine. */
  "event.unsubscribe": { params: EventUnsubscribeParams; result: Done };
  /** Gives events, oldest first, of the last 10,000. */
  "event.list": { params: EventListParams; result: Event[] };
  /** Keeps a row for a sandbox that this daemon does not run. Overwrites only rows of its own kind. */
  "store.save": { params: StoreSaveParams; result: StoreRow };
  /** Gives such a row with everything that was stored, or null. */
  "store.load": { params: StoreLoadParams; result: StoreRow | null };
  /** Lists such rows of one store, without their other values. */
  "store.list_all": { params: StoreListAllParams; result: StoreRow[] };
  /** Deletes such a row, if it is there. */
  "store.delete": { params: StoreDeleteParams; result: StoreDeleteResult };
  /** Gives the whole session table as one document, without values of environments unless asked for. */
  "table.export": { params: TableExportParams; result: TableDocument };
  /** Merges an exported table into this one. A session that is there already stays as it is, but for secrets of the document that it lacks; what a session has on this engine decides its state. */
  "table.import": { params: TableImportParams; result: ImportOutcome[] };
}

/** The kinds of errors that this version knows. One that it does not know is to be treated as `internal`. */
export type ErrorKind =
  | "busy"
  | "command_not_executable"
  | "command_not_found"
  | "engine_error"
  | "engine_timeout"
  | "engine_unavailable"
  | "exec_not_found"
  | "file_denied"
  | "file_not_found"
  | "image_not_found"
  | "internal"
  | "invalid_name"
  | "invalid_params"
  | "limit"
  | "sandbox_lost"
  | "session_exists"
  | "session_not_found"
  | "shutting_down"
  | "snapshot_not_found"
  | "store_busy"
  | "store_full"
  | "store_newer"
  | "workspace_missing"
  | "wrong_state";
